// Draws line tracks: bandwidth, and counters of the machine.
import type { Theme } from "./colours";
import { drawTileImage } from "./draw_tiles";
import { type Drawing, rowsKey } from "./drawing";
import { TILE_WIDTH } from "./generated";
import type { Line } from "./layout";
import { snapToPixel, tileImage } from "./tile_cache";
import { tilesOf } from "./tiles";
import { toTime, toX, zoomOf } from "./view";

type Step = [from: number, to: number, value: number];

/** Pixels of a line with the same value, together; pixels without a value are left out. */
export function stepsOf(values: Float32Array): Step[] {
  const steps: Step[] = [];
  let last: Step | undefined;
  for (const [n, value] of values.entries()) {
    if (Number.isNaN(value)) last = undefined;
    else if (last && last[2] === value) last[1] = n + 1;
    else {
      last = [n, n + 1, value];
      steps.push(last);
    }
  }
  return steps;
}

/** The next round number, so that the height of a line does not change with every pixel of a move. */
export function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return (ROUND.find((factor) => factor * power >= value * (1 - 1e-9)) ?? 10) * power;
}
const ROUND = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];

/** Draws bandwidth or a counter by pixel, filled below; the largest value in view. `scale`: that of
 * all lines that have one scale.
 */
export function drawLine(drawing: Drawing, line: Line, y: number, scale: number): number {
  const { context, theme, view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const pixel = 2 ** zoom;
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  const loaded: [number, Float32Array][] = [];
  let most = 0;
  for (let place = from; place <= to; place++) {
    const values = tiles.line(zoom, place, line.strips[0]);
    if (!values) continue;
    loaded.push([place, values]);
    const first = Math.max(Math.floor(view.start / pixel) - place * TILE_WIDTH, 0);
    const last = Math.min(toTime(view, width) / pixel - place * TILE_WIDTH, TILE_WIDTH);
    for (let n = first; n < last; n++) if (values[n] > most) most = values[n];
  }
  if (most <= 0) return 0;
  const height = line.stripHeight;
  const top = roundUp(Math.max(scale, most));
  const shrink = pixel / view.nsPerPixel; // pixels of the screen for each of a tile
  for (const [place, values] of loaded) {
    if (shrink > 1) {
      const at = (n: number) => snapToPixel(toX(view, (place * TILE_WIDTH + n) * pixel));
      drawSteps(context, theme, values, at, { top, y, height });
      continue;
    }
    const key = `${zoom}/${place}/${top}/${height}/${devicePixelRatio}/${rowsKey(line.strips[0])}`;
    const size = { scale: shrink, width: TILE_WIDTH * shrink + 1, height };
    const image = tileImage(key, [values], theme, size, false, (inside) =>
      drawSteps(inside, theme, squeeze(values, shrink), (n) => n, { top, y: 0, height }),
    );
    drawTileImage(drawing, image, { zoom, place, rows: [] }, y, [-Infinity, Infinity]);
  }
  return most;
}

/** The values in fewer pixels: in each the mean of those that are known. */
export function squeeze(values: Float32Array, scale: number): Float32Array {
  if (scale === 1) return values;
  const sums = new Float32Array(Math.ceil(values.length * scale));
  const known = new Float32Array(sums.length);
  for (const [n, value] of values.entries()) {
    if (Number.isNaN(value)) continue;
    for (let x = Math.floor(n * scale); x < (n + 1) * scale && x < sums.length; x++) {
      const share = Math.min((n + 1) * scale, x + 1) - Math.max(n * scale, x);
      sums[x] += share * value;
      known[x] += share;
    }
  }
  return sums.map((sum, x) => (known[x] > 0 ? sum / known[x] : NaN));
}

function drawSteps(
  context: CanvasRenderingContext2D,
  theme: Theme,
  values: Float32Array,
  at: (n: number) => number,
  { top, y, height }: { top: number; y: number; height: number },
): void {
  const steps = stepsOf(values);
  const levelOf = (value: number) => y + height - Math.min(value / top, 1) * (height - 3) - 0.5;
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.22;
  for (const [from, to, value] of steps) {
    context.fillRect(at(from), levelOf(value), at(to) - at(from), y + height - levelOf(value));
  }
  context.globalAlpha = 0.9;
  for (const [n, [from, to, value]] of steps.entries()) {
    const level = levelOf(value);
    context.fillRect(at(from), level - 0.5, at(to) - at(from), 1);
    // Up or down from the step before, unless there is a gap.
    const before = steps[n - 1]?.[1] === from ? levelOf(steps[n - 1][2]) : level;
    const distance = Math.abs(before - level);
    if (distance > 0.5) context.fillRect(at(from) - 0.5, Math.min(before, level) - 0.5, 1, distance + 1);
  }
  context.globalAlpha = 1;
}
