// Line tracks: bandwidth, counters of the machine.
import type { Theme } from "./colours";
import { type Drawing, drawPicture, keyOf } from "./draw_bars";
import type { Line } from "./layout";
import { pictureOf, snapped } from "./tile_cache";
import { WIDTH, tilesOf } from "./tiles";
import { toTime, toX, zoomOf } from "./view";

/** Stretches of a line with one value: from, to, value. What nobody knows is in none. */
export function levelsOf(values: Float32Array): [number, number, number][] {
  const levels: [number, number, number][] = [];
  let last: [number, number, number] | undefined;
  values.forEach((value, n) => {
    if (Number.isNaN(value)) last = undefined;
    else if (last && last[2] === value) last[1] = n + 1;
    else levels.push((last = [n, n + 1, value]));
  });
  return levels;
}

/** Round numbers, so that a line does not change its height with every pixel it is moved. */
export function roundedUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return (ROUND.find((one) => one * power >= value * (1 - 1e-9)) ?? 10) * power;
}
const ROUND = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];

/** A line track: bandwidth or a counter by pixel, filled below; nothing where it is not known. Returns the most in view. */
export function drawLine(drawing: Drawing, line: Line, y: number, scale: number): number {
  const { context, theme, view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const pixel = 2 ** zoom;
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  const found: [number, Float32Array][] = [];
  let most = 0;
  for (let place = from; place <= to; place++) {
    const values = tiles.line(zoom, place, line.strips[0]);
    if (!values) continue;
    found.push([place, values]);
    const first = Math.max(Math.floor(view.start / pixel) - place * WIDTH, 0);
    const last = Math.min(toTime(view, width) / pixel - place * WIDTH, WIDTH);
    for (let n = first; n < last; n++) if (values[n] > most) most = values[n];
  }
  if (most <= 0) return 0;
  const height = line.stripHeight;
  const top = roundedUp(Math.max(scale, most));
  const width1 = pixel / view.nsPerPixel; // of a tile's pixel
  for (const [place, values] of found) {
    if (width1 > 1) {
      drawLevels(
        context,
        theme,
        values,
        (n) => snapped(toX(view, (place * WIDTH + n) * pixel)),
        top,
        y,
        height,
      );
      continue;
    }
    const key = `${zoom}/${place}/${top}/${height}/${devicePixelRatio}/${keyOf(line.strips[0])}`;
    const picture = pictureOf(key, [values], theme, width1, WIDTH * width1 + 1, height, false, (inside) =>
      drawLevels(inside, theme, squeezed(values, width1), (n) => n, top, 0, height),
    );
    drawPicture(drawing, picture, { zoom, place, known: [] }, y, -Infinity, Infinity);
  }
  return most;
}

/** The mean in each of fewer pixels, of what is known. */
export function squeezed(values: Float32Array, scale: number): Float32Array {
  if (scale === 1) return values;
  const out = new Float32Array(Math.ceil(values.length * scale));
  const known = new Float32Array(out.length);
  values.forEach((value, n) => {
    if (Number.isNaN(value)) return;
    for (let x = Math.floor(n * scale); x < (n + 1) * scale && x < out.length; x++) {
      const share = Math.min((n + 1) * scale, x + 1) - Math.max(n * scale, x);
      out[x] += share * value;
      known[x] += share;
    }
  });
  return out.map((sum, x) => (known[x] > 0 ? sum / known[x] : NaN));
}

function drawLevels(
  context: CanvasRenderingContext2D,
  theme: Theme,
  values: Float32Array,
  at: (n: number) => number,
  top: number,
  y: number,
  height: number,
): void {
  const levels = levelsOf(values);
  const levelOf = (value: number) => y + height - Math.min(value / top, 1) * (height - 3) - 0.5;
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.22;
  for (const [from, to, value] of levels)
    context.fillRect(at(from), levelOf(value), at(to) - at(from), y + height - levelOf(value));
  context.globalAlpha = 0.9;
  levels.forEach(([from, to, value], n) => {
    const level = levelOf(value);
    context.fillRect(at(from), level - 0.5, at(to) - at(from), 1);
    // Up or down from the one before, unless there is a gap.
    const before = levels[n - 1]?.[1] === from ? levelOf(levels[n - 1][2]) : level;
    if (Math.abs(before - level) > 0.5)
      context.fillRect(at(from) - 0.5, Math.min(before, level) - 0.5, 1, Math.abs(before - level) + 1);
  });
  context.globalAlpha = 1;
}
