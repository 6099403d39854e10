// What part of time is shown, and how it goes into the address.
import type { Filter } from "./types";

export const NS_PER_PIXEL_LEAST = 0.05;

export interface View {
  start: number; // ns since the scene's first
  nsPerPixel: number;
}

export function toX(view: View, ns: number): number {
  return (ns - view.start) / view.nsPerPixel;
}

export function toTime(view: View, x: number): number {
  return view.start + x * view.nsPerPixel;
}

/** The same moment stays under x. */
export function zoomed(view: View, x: number, factor: number, most: number): View {
  const nsPerPixel = Math.min(Math.max(view.nsPerPixel * factor, NS_PER_PIXEL_LEAST), most);
  return { start: toTime(view, x) - x * nsPerPixel, nsPerPixel };
}

export function panned(view: View, pixels: number): View {
  return { ...view, start: view.start + pixels * view.nsPerPixel };
}

/** A stretch of time with some room at its sides. */
export function fitting(first: number, last: number, width: number, room = 0.03): View {
  const span = Math.max(last - first, width * NS_PER_PIXEL_LEAST);
  const nsPerPixel = (span * (1 + 2 * room)) / Math.max(width, 1);
  return { start: first - span * room, nsPerPixel };
}

/** Not so far away that nothing is left on the page. */
export function kept(view: View, span: number, width: number): View {
  const wide = view.nsPerPixel * width;
  const least = -wide * 0.9;
  const most = span - wide * 0.1;
  return { ...view, start: Math.min(Math.max(view.start, least), Math.max(most, least)) };
}

/** Tiles have 2**zoom ns a pixel: never more than the view. */
export function zoomOf(view: View): number {
  return Math.max(0, Math.floor(Math.log2(view.nsPerPixel) + 1e-9));
}

/** Everything that an address keeps. */
export interface Address {
  first?: number;
  span?: number;
  scroll?: number;
  flipped: string[]; // lanes folded or unfolded by hand
  hidden: string[]; // kinds
  filter: Filter;
  ranks?: number[];
  communicators?: string[];
  pin?: { key: string; start: number };
  selection?: [number, number];
  lines: boolean;
}

function numbers(text: string | null): number[] | undefined {
  if (text === null) return undefined;
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
  const { functions, sources, least, most } = address.filter;
  if (functions) out.set("fn", functions.join(","));
  if (sources) out.set("src", sources.join(","));
  if (least !== undefined) out.set("least", String(least));
  if (most !== undefined) out.set("most", String(most));
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
    filter: { functions: numbers(given.get("fn")), sources: numbers(given.get("src")), least: one("least"), most: one("most") },
    pin: pin ? { start: Number(pin[1]), key: pin[2] } : undefined,
    selection: selection?.length === 2 ? [selection[0], selection[1]] : undefined,
    lines: given.get("lines") !== "0",
  };
}
