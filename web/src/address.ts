// The state of the page as the text after the # of its address.
import type { OperationFilter } from "./types";

/** Everything that an address holds. */
export interface Address {
  first?: number; // ns since the scene's first
  span?: number; // ns
  scroll?: number; // pixels
  toggledLanes: string[]; // folded or unfolded by hand
  hidden: string[]; // kinds
  filter: OperationFilter;
  ranks?: number[];
  communicators?: string[];
  pin?: { key: string; start: number }; // name of a row, and start of a bar in ns
  selection?: [number, number]; // ns
  lines: boolean;
}

function numbers(text: string | null): number[] | undefined {
  if (!text) return undefined;
  const values = text.split(",").map(Number);
  return values.every((value) => Number.isFinite(value)) ? values : undefined;
}

export function encodeAddress(address: Address): string {
  const parameters = new URLSearchParams();
  if (address.first !== undefined && address.span !== undefined) {
    parameters.set("t", `${Math.round(address.first)},${Math.round(address.span)}`);
  }
  if (address.scroll) parameters.set("y", String(Math.round(address.scroll)));
  if (address.toggledLanes.length) parameters.set("fold", address.toggledLanes.join("~"));
  if (address.hidden.length) parameters.set("hide", address.hidden.join(","));
  if (address.ranks) parameters.set("ranks", address.ranks.join(","));
  if (address.communicators) parameters.set("comms", JSON.stringify(address.communicators));
  const { functions, sources, leastBytes, mostBytes } = address.filter;
  if (functions) parameters.set("fn", functions.join(","));
  if (sources) parameters.set("src", sources.join(","));
  if (leastBytes !== undefined) parameters.set("least", String(leastBytes));
  if (mostBytes !== undefined) parameters.set("most", String(mostBytes));
  if (address.pin) parameters.set("pin", `${address.pin.start}@${address.pin.key}`);
  if (address.selection) parameters.set("sel", address.selection.map(Math.round).join(","));
  if (!address.lines) parameters.set("lines", "0");
  return parameters.toString();
}

export function decodeAddress(text: string): Address {
  const parameters = new URLSearchParams(text.replace(/^#/, ""));
  const time = numbers(parameters.get("t"));
  const list = (name: string, by: string) => (parameters.get(name) ?? "").split(by).filter(Boolean);
  const pin = /^(\d+)@(.+)$/.exec(parameters.get("pin") ?? "");
  const selection = numbers(parameters.get("sel"));
  const number = (name: string) => numbers(parameters.get(name))?.[0];
  let communicators: string[] | undefined;
  try {
    const list: unknown = JSON.parse(parameters.get("comms") ?? "null");
    if (Array.isArray(list)) communicators = list.map(String);
  } catch {
    // the address was cut off: the filter is left out
  }
  return {
    first: time?.length === 2 ? time[0] : undefined,
    span: time?.length === 2 && time[1] > 0 ? time[1] : undefined,
    scroll: number("y"),
    toggledLanes: list("fold", "~"),
    hidden: list("hide", ","),
    ranks: numbers(parameters.get("ranks")),
    communicators,
    filter: {
      functions: numbers(parameters.get("fn")),
      sources: numbers(parameters.get("src")),
      leastBytes: number("least"),
      mostBytes: number("most"),
    },
    pin: pin ? { start: Number(pin[1]), key: pin[2] } : undefined,
    selection: selection?.length === 2 ? [selection[0], selection[1]] : undefined,
    lines: parameters.get("lines") !== "0",
  };
}
