// Names of bars, where there is room for them.
import type { Drawing, Strip, Tile } from "./draw_bars";
import { FONT, ITALIC, shortened } from "./canvas_text";
import { snapped } from "./tile_cache";
import { size } from "./text";
import { WIDTH } from "./tiles";
import { LOOK, type Runs } from "./types";
import { toX } from "./view";

const LABEL_FROM = 30; // pixels
const LEAST_NAMED = 11; // pixels of height
const MOST_COVERED = 20; // bars above one that are looked between for room

interface Name {
  runs: Runs;
  n: number;
  from: number; // pixels of the tile that no other row covers
  to: number;
}

const names = new WeakMap<Runs, { known: Runs[]; found: Name[] }>(); // by the row on top

/** Bars of a tile that have so many pixels for a name, not covered by rows above them. */
export function namesOf(known: Runs[], least: number): Name[] {
  const top = known[known.length - 1];
  const kept = least === LABEL_FROM ? names.get(top) : undefined;
  if (kept && kept.known.length === known.length && kept.known.every((one, n) => one === known[n]))
    return kept.found;
  const found: Name[] = [];
  known.forEach((runs, row) => {
    const above = known.slice(row + 1);
    for (let n = 0; n < runs.length; n++) {
      if (runs.count[n] !== 1 || runs.x1[n] - runs.x0[n] < least) continue;
      const free = freeStretch(above, runs.x0[n], runs.x1[n], least);
      if (free) found.push({ runs, n, from: free[0], to: free[1] });
    }
  });
  if (least === LABEL_FROM) names.set(top, { known, found });
  return found;
}

/** The first stretch between two pixels, at least so long, in which none of some rows has a bar. */
function freeStretch(rows: Runs[], x0: number, x1: number, least: number): [number, number] | undefined {
  let from = x0;
  for (let tries = 0; tries < MOST_COVERED && x1 - from >= least; tries++) {
    let [to, past] = [x1, x1];
    for (const runs of rows) {
      const n = firstAfter(runs, from);
      if (n < runs.length && runs.x0[n] < to) [to, past] = [runs.x0[n], runs.x1[n]];
    }
    if (to - from >= least) return [from, to];
    from = Math.max(past, from);
  }
  return undefined;
}

/** The first run that ends after x. */
function firstAfter(runs: Runs, x: number): number {
  let [low, high] = [0, runs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (runs.x1[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Names of a tile's bars; of those that begin before it only in the first. */
export function drawNames(
  drawing: Drawing,
  strip: Strip,
  { zoom, place, known }: Tile,
  first: boolean,
): void {
  const { view, width } = drawing;
  if (strip.height < LEAST_NAMED || !known.length) return;
  const scale = 2 ** zoom / view.nsPerPixel;
  const origin = toX(view, place * WIDTH * 2 ** zoom);
  for (const { runs, n, from, to } of namesOf(known, LABEL_FROM / Math.max(scale, 1))) {
    if (runs.x0[n] < 0 && !first) continue;
    const [exact0, exact1] = [origin + runs.x0[n] * scale, origin + runs.x1[n] * scale];
    const [x0, x1] = [Math.max(origin + from * scale, -2), Math.min(origin + to * scale, width + 2)];
    if (x1 - x0 >= LABEL_FROM)
      drawName(drawing, runs, n, strip, x0, x1, exact0 + (runs.wait[n] / 255) * (exact1 - exact0));
  }
}

/** A bar's name, in the wider of its pale and its full part: there it can be read. */
function drawName(
  drawing: Drawing,
  runs: Runs,
  n: number,
  { kind, y, height }: Strip,
  x0: number,
  x1: number,
  waitingUntil: number,
): void {
  const { context, theme } = drawing;
  const look = runs.look[n];
  const name = drawing.names[String(runs.code[n])] ?? "";
  const replay = look & LOOK.replay ? "↻ " : "";
  const value = runs.value[n];
  const more = kind === "operation" && value >= 0 ? ` ${size(value)}` : value >= 0 ? ` ${value}` : "";
  const middle = Math.min(Math.max(waitingUntil, x0), x1);
  const untimed = !!(look & LOOK.untimed);
  const pale = untimed || middle - x0 >= x1 - middle;
  const [from, to] = untimed ? [x0, x1] : pale ? [x0, middle] : [middle, x1];
  const font = look & LOOK.inferred ? ITALIC : FONT;
  const text = shortened(context, `${replay}${name}${more}`, to - from - 8, font);
  if (!text) return;
  context.globalAlpha = 1;
  context.font = font;
  context.fillStyle = pale ? theme.text : theme.onBar(runs.code[n]);
  context.fillText(text, snapped(from + 4), y + height / 2 + 0.5);
}
