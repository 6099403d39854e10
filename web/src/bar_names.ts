// Names of bars, where there is room for them.
import { FONT, fitCanvasText, ITALIC } from "./canvas_text";
import type { Drawing, Strip, Tile } from "./drawing";
import { COLOUR_NAMES, KIND, LOOK, type Runs, TILE_WIDTH } from "./generated";
import { size } from "./text";
import { snapToPixel } from "./tile_cache";
import { toX } from "./view";

const LEAST_WIDTH = 30; // pixels
const LEAST_HEIGHT = 11; // pixels
const MOST_GAPS = 20; // between bars of rows above, that are tried

interface Name {
  runs: Runs;
  n: number;
  from: number; // the pixels of the tile that no other row covers
  to: number;
}

const cache = new WeakMap<Runs, { rows: Runs[]; names: Name[] }>(); // by the row on top

/** The bars of a tile with room for a name of a width: rows above them leave that many pixels free. */
export function barNames(rows: Runs[], least: number): Name[] {
  const top = rows[rows.length - 1];
  const cached = least === LEAST_WIDTH ? cache.get(top) : undefined;
  const isSame = cached?.rows.length === rows.length && cached.rows.every((runs, n) => runs === rows[n]);
  if (cached && isSame) return cached.names;
  const names: Name[] = [];
  for (const [row, runs] of rows.entries()) {
    const above = rows.slice(row + 1);
    for (let n = 0; n < runs.length; n++) {
      if (runs.count[n] !== 1 || runs.x1[n] - runs.x0[n] < least) continue;
      const gap = firstGap(above, runs.x0[n], runs.x1[n], least);
      if (gap) names.push({ runs, n, from: gap[0], to: gap[1] });
    }
  }
  if (least === LEAST_WIDTH) cache.set(top, { rows, names });
  return names;
}

/** The first gap between two pixels, at least so wide, in which none of some rows has a bar. */
function firstGap(rows: Runs[], x0: number, x1: number, least: number): [number, number] | undefined {
  let from = x0;
  for (let tries = 0; tries < MOST_GAPS && x1 - from >= least; tries++) {
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

/** Draws the names of a tile's bars; of bars that begin before the tile only in the first tile. */
export function drawNames(drawing: Drawing, strip: Strip, { zoom, place, rows }: Tile, first: boolean): void {
  const { view, width } = drawing;
  if (strip.height < LEAST_HEIGHT || !rows.length) return;
  const scale = 2 ** zoom / view.nsPerPixel;
  const origin = toX(view, place * TILE_WIDTH * 2 ** zoom);
  for (const { runs, n, from, to } of barNames(rows, LEAST_WIDTH / Math.max(scale, 1))) {
    if (runs.x0[n] < 0 && !first) continue;
    const [exact0, exact1] = [origin + runs.x0[n] * scale, origin + runs.x1[n] * scale];
    const [x0, x1] = [Math.max(origin + from * scale, -2), Math.min(origin + to * scale, width + 2)];
    if (x1 - x0 >= LEAST_WIDTH)
      drawName(drawing, runs, n, strip, x0, x1, exact0 + (runs.wait[n] / 255) * (exact1 - exact0));
  }
}

/** Draws a name in the wider of the bar's pale and full part. */
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
  const name = COLOUR_NAMES[runs.code[n]] ?? "";
  const replay = look & LOOK.replay ? "↻ " : "";
  const value = runs.value[n];
  const more = kind === KIND.operation && value >= 0 ? ` ${size(value)}` : value >= 0 ? ` ${value}` : "";
  const middle = Math.min(Math.max(waitingUntil, x0), x1);
  const untimed = !!(look & LOOK.untimed);
  const pale = untimed || middle - x0 >= x1 - middle;
  const [from, to] = untimed ? [x0, x1] : pale ? [x0, middle] : [middle, x1];
  const font = look & LOOK.inferred ? ITALIC : FONT;
  const text = fitCanvasText(context, `${replay}${name}${more}`, to - from - 8, font);
  if (!text) return;
  context.globalAlpha = 1;
  context.font = font;
  context.fillStyle = pale ? theme.text : theme.onBar(runs.code[n]);
  context.fillText(text, snapToPixel(from + 4), y + height / 2 + 0.5);
}
