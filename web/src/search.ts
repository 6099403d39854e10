// The search of ncclscope/web/search.py, for a page that has no server. A test compares their answers.
import {
  CAPTURED_STATE,
  SEARCH_NAME_FIELDS,
  SEARCH_NUMBER_KEYS,
  SEARCH_SIZE_UNITS,
  SEARCH_TERM,
  SEARCH_TIME_UNITS_NS,
} from "./generated";
import type { Field } from "./types";

/** Gives the value of a field of an operation; undefined: it is not known. */
export type FieldOf = (name: string) => Field["value"] | undefined;

const SIZE_UNITS = new Map(Object.entries(SEARCH_SIZE_UNITS));
const TIME_UNITS_NS = new Map(Object.entries(SEARCH_TIME_UNITS_NS));

const MOMENT = /^@\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zµμ]*)$/i;

/** The time of `@1.5s` or `@250ms` in ns since the scene's first; undefined: it is no time. */
export function parseMoment(text: string): number | undefined {
  const [, number, unit] = text.match(MOMENT) ?? [];
  const factor = TIME_UNITS_NS.get((unit || "s").toLowerCase());
  return number === undefined || factor === undefined ? undefined : Number(number) * factor;
}

type Match = (field: FieldOf) => boolean;

/** A function that tells whether an operation matches all terms of a search; undefined: no term. */
export function parseSearch(text: string): Match | undefined {
  const terms = [...text.matchAll(new RegExp(SEARCH_TERM, "g"))].map(parseTerm);
  if (!terms.length) return undefined;
  return (field) => field("state") !== CAPTURED_STATE && terms.every((term) => term(field));
}

function parseTerm([, key, value, sign, limit, unit, word]: RegExpMatchArray): Match {
  if (sign) return parseComparison(sign, Number(limit), unit.toLowerCase());
  if (key in SEARCH_NUMBER_KEYS) {
    const number = /^[0-9]{1,17}$/.test(value) ? Number(value) : undefined;
    return (field) => number !== undefined && field(SEARCH_NUMBER_KEYS[key]) === number;
  }
  const name = (value ?? word).toLowerCase();
  const fields = key === "comm" ? ["communicator"] : key ? [key] : ["communicator", ...SEARCH_NAME_FIELDS];
  return (field) =>
    fields.some((one) =>
      String(field(one) ?? "")
        .toLowerCase()
        .includes(name),
    );
}

function parseComparison(sign: string, limit: number, unit: string): Match {
  const [bytes, ns] = [SIZE_UNITS.get(unit), TIME_UNITS_NS.get(unit)];
  const factor = bytes ?? ns;
  if (factor === undefined) return () => false;
  const name = bytes === undefined ? "duration_ns" : "size_bytes";
  return (field) => {
    const value = field(name);
    return typeof value === "number" && (sign === ">" ? value > limit * factor : value < limit * factor);
  };
}
