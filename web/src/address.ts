// What the page shows, as text after the # of its address.
import type { Filter } from "./types";

/** Everything that an address keeps. */
export interface Address {
  first?: number; // ns since the scene's first
  span?: number; // ns
  scroll?: number; // pixels
  flipped: string[]; // lanes folded or unfolded by hand
  hidden: string[]; // kinds
  filter: Filter;
  ranks?: number[];
  communicators?: string[];
  pin?: { key: string; start: number }; // a row's name, and when its bar begins in ns
  selection?: [number, number]; // ns
  lines: boolean;
}

function numbers(text: string | null): number[] | undefined {
  if (!text) return undefined;
  const found = text.split(",").map(Number);
  return found.every((value) => Number.isFinite(value)) ? found : undefined;
}

export function encodeAddress(address: Address): string {
  const out = new URLSearchParams();
  if (address.first !== undefined && address.span !== undefined) {
    out.set("t", `${Math.round(address.first)},${Math.round(address.span)}`);
  }
  if (address.scroll) out.set("y", String(Math.round(address.scroll)));
  if (address.flipped.length) out.set("fold", address.flipped.join("~"));
  if (address.hidden.length) out.set("hide", address.hidden.join(","));
  if (address.ranks) out.set("ranks", address.ranks.join(","));
  if (address.communicators) out.set("comms", JSON.stringify(address.communicators));
  const { functions, sources, leastBytes, mostBytes } = address.filter;
  if (functions) out.set("fn", functions.join(","));
  if (sources) out.set("src", sources.join(","));
  if (leastBytes !== undefined) out.set("least", String(leastBytes));
  if (mostBytes !== undefined) out.set("most", String(mostBytes));
  if (address.pin) out.set("pin", `${address.pin.start}@${address.pin.key}`);
  if (address.selection) out.set("sel", address.selection.map(Math.round).join(","));
  if (!address.lines) out.set("lines", "0");
  return out.toString();
}

export function decodeAddress(text: string): Address {
  const given = new URLSearchParams(text.replace(/^#/, ""));
  const time = numbers(given.get("t"));
  const list = (name: string, by: string) => (given.get(name) ?? "").split(by).filter(Boolean);
  const pin = /^(\d+)@(.+)$/.exec(given.get("pin") ?? "");
  const selection = numbers(given.get("sel"));
  const one = (name: string) => numbers(given.get(name))?.[0];
  let communicators: string[] | undefined;
  try {
    const told: unknown = JSON.parse(given.get("comms") ?? "null");
    if (Array.isArray(told)) communicators = told.map(String);
  } catch {
    // an address that was cut off: without this filter
  }
  return {
    first: time?.length === 2 ? time[0] : undefined,
    span: time?.length === 2 && time[1] > 0 ? time[1] : undefined,
    scroll: one("y"),
    flipped: list("fold", "~"),
    hidden: list("hide", ","),
    ranks: numbers(given.get("ranks")),
    communicators,
    filter: {
      functions: numbers(given.get("fn")),
      sources: numbers(given.get("src")),
      leastBytes: one("least"),
      mostBytes: one("most"),
    },
    pin: pin ? { start: Number(pin[1]), key: pin[2] } : undefined,
    selection: selection?.length === 2 ? [selection[0], selection[1]] : undefined,
    lines: given.get("lines") !== "0",
  };
}
