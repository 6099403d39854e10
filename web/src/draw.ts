// Draws lanes from tiles: bars with waiting apart from moving data, looks, names.
import type { Theme } from "./colours";
import type { Line } from "./layout";
import { fitted, size } from "./text";
import { type Tiles, WIDTH, tilesOf } from "./tiles";
import { LOOK, type Runs } from "./types";
import { type View, toTime, toX, zoomOf } from "./view";

export interface Drawing {
  context: CanvasRenderingContext2D;
  theme: Theme;
  view: View;
  width: number; // of the time axis, in pixels
  tiles: Tiles;
  names: Record<string, string>;
}

const LABEL_FROM = 30; // pixels
export const FONT = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const COARSER = 6; // zooms to look for something to show meanwhile

/** Draws one row of bars; y is on the canvas. */
export function drawRow(drawing: Drawing, row: number, kind: string, y: number, height: number): void {
  const { view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  for (let place = from; place <= to; place++) {
    const runs = tiles.get(zoom, place, row);
    if (runs && isDense(runs)) {
      drawDense(drawing, runs, zoom, place, kind, y, height);
    } else if (runs) {
      drawRuns(drawing, runs, zoom, place, kind, y, height, place === from, -Infinity, Infinity);
    } else {
      const span = WIDTH * 2 ** zoom;
      const left = toX(view, place * span);
      drawCoarser(drawing, row, zoom, place, kind, y, height, left, left + span / view.nsPerPixel);
    }
  }
}

const DENSE_FROM = 120; // runs in a tile
const dense = new WeakMap<Runs, { picture: HTMLCanvasElement; theme: Theme; height: number }>();
const kinds = new WeakMap<Runs, boolean>();

/** Many narrow runs, none with room for a name: drawn once, then moved as a picture. */
export function isDense(runs: Runs): boolean {
  let known = kinds.get(runs);
  if (known === undefined) {
    known = runs.length >= DENSE_FROM;
    for (let n = 0; known && n < runs.length; n++) {
      known = runs.x1[n] - runs.x0[n] < LABEL_FROM && runs.x1[n] - runs.x0[n] >= 0;
    }
    kinds.set(runs, known);
  }
  return known;
}

function drawDense(drawing: Drawing, runs: Runs, zoom: number, place: number, kind: string, y: number, height: number): void {
  const { context, theme, view } = drawing;
  let kept = dense.get(runs);
  if (!kept || kept.theme !== theme || kept.height !== height) {
    const picture = document.createElement("canvas");
    picture.width = WIDTH;
    picture.height = Math.ceil(height);
    const inside = picture.getContext("2d") as CanvasRenderingContext2D;
    const alone = { ...drawing, context: inside, width: WIDTH, view: { start: place * WIDTH * 2 ** zoom, nsPerPixel: 2 ** zoom } };
    drawRuns(alone, runs, zoom, place, kind, 0, height, true, -Infinity, Infinity);
    kept = { picture, theme, height };
    dense.set(runs, kept);
  }
  const left = toX(view, place * WIDTH * 2 ** zoom);
  context.globalAlpha = 1;
  context.drawImage(kept.picture, left, y, (WIDTH * 2 ** zoom) / view.nsPerPixel, kept.picture.height);
}

/** What a coarser tile shows, where the right one is not there yet. */
function drawCoarser(
  drawing: Drawing, row: number, zoom: number, place: number, kind: string, y: number, height: number, left: number, right: number,
): void {
  for (let up = 1; up <= COARSER; up++) {
    const runs = drawing.tiles.peek(zoom + up, Math.floor(place / 2 ** up), row);
    if (runs) {
      drawRuns(drawing, runs, zoom + up, Math.floor(place / 2 ** up), kind, y, height, true, left, right);
      return;
    }
  }
}

function drawRuns(
  drawing: Drawing, runs: Runs, zoom: number, place: number, kind: string, y: number, height: number, first: boolean, least: number, most: number,
): void {
  const { context, theme, view, width } = drawing;
  const scale = 2 ** zoom / view.nsPerPixel;
  const origin = toX(view, place * WIDTH * 2 ** zoom);
  const right = Math.min(most, width);
  const left = Math.max(least, 0);
  let colour = "";
  for (let n = 0; n < runs.length; n++) {
    if (runs.x0[n] < 0 && !first) continue; // begins in the tile before, and was drawn there
    const exact0 = origin + runs.x0[n] * scale;
    const exact1 = origin + runs.x1[n] * scale;
    if (exact1 < left || exact0 > right) continue;
    const x0 = Math.max(exact0, left - 2);
    const x1 = Math.min(Math.max(exact1, exact0 + 1), right + 2);
    const look = runs.look[n];
    const single = runs.count[n] === 1;
    const next = theme.bars(runs.code[n]);
    if (next !== colour) {
      context.fillStyle = next;
      context.strokeStyle = next;
      colour = next;
    }
    if (single && x1 - x0 >= 3) {
      drawBar(drawing, runs, n, exact0, exact1, x0, x1, y, height, look);
      colour = "";
      if (x1 - x0 >= LABEL_FROM && height >= 11) {
        drawLabel(drawing, runs, n, kind, x0, x1, exact0 + (runs.wait[n] / 255) * (exact1 - exact0), y, height);
      }
    } else {
      drawThin(drawing, runs, n, x0, x1, y, height, look, kind);
    }
  }
  context.globalAlpha = 1;
}

/** Several bars in few pixels, or one that is hardly wider than a line. */
function drawThin(drawing: Drawing, runs: Runs, n: number, x0: number, x1: number, y: number, height: number, look: number, kind: string): void {
  const { context } = drawing;
  const width = Math.max(x1 - x0, kind === "Comm" ? 2.5 : 1);
  const wait = runs.wait[n] / 255;
  const strength = 0.3 + (0.7 * runs.fill[n]) / 255;
  if (look & LOOK.untimed && !runs.wait[n]) {
    context.globalAlpha = 0.55 * strength;
    context.fillRect(x0, y + height * 0.3, width, height * 0.4);
    return;
  }
  if (wait > 0.02) {
    context.globalAlpha = 0.32 * strength;
    context.fillRect(x0, y, width, height * wait);
  }
  context.globalAlpha = strength;
  context.fillRect(x0, y + height * wait, width, height * (1 - wait));
}

function drawBar(
  drawing: Drawing, runs: Runs, n: number, exact0: number, exact1: number, x0: number, x1: number, y: number, height: number, look: number,
): void {
  const { context, theme } = drawing;
  const colour = theme.bars(runs.code[n]);
  const width = x1 - x0;
  if (look & LOOK.untimed) {
    // Only the host's times: hollow.
    context.globalAlpha = 0.14;
    context.fillRect(x0, y, width, height);
    context.globalAlpha = 0.9;
    context.setLineDash([3, 2]);
    context.strokeRect(x0 + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
    context.setLineDash([]);
    return;
  }
  const waiting = (runs.wait[n] / 255) * (exact1 - exact0);
  const wire0 = Math.min(Math.max(exact0 + waiting, x0), x1);
  if (wire0 > x0) {
    context.globalAlpha = theme.dark ? 0.34 : 0.28;
    context.fillRect(x0, y, wire0 - x0, height);
  }
  context.globalAlpha = 0.95;
  context.fillRect(wire0, y, x1 - wire0, height);
  if (look & LOOK.open) drawOpen(drawing, colour, wire0, x1, y, height);
  if (look & LOOK.lowerBound) fade(drawing, x1, y, height, Math.min(10, width / 2));
  if (look & LOOK.repaired) {
    context.globalAlpha = 0.9;
    context.fillStyle = theme.paper;
    context.beginPath();
    context.moveTo(x0, y);
    context.lineTo(x0 + 6, y);
    context.lineTo(x0, y + 6);
    context.fill();
  }
  if (look & LOOK.mismatch) {
    context.globalAlpha = 1;
    context.strokeStyle = theme.instance;
    context.lineWidth = 2;
    context.strokeRect(x0 + 1, y + 1, Math.max(width - 2, 1), height - 2);
    context.lineWidth = 1;
  }
  // A hairline keeps neighbours apart.
  context.globalAlpha = 0.5;
  context.fillStyle = theme.paper;
  if (exact1 <= x1 + 0.5 && width > 4) context.fillRect(x1 - 0.7, y, 0.7, height);
}

/** Not ended when the capture did: slanted stripes, and a red end. */
function drawOpen(drawing: Drawing, colour: string, x0: number, x1: number, y: number, height: number): void {
  const { context, theme } = drawing;
  context.save();
  context.beginPath();
  context.rect(x0, y, x1 - x0, height);
  context.clip();
  context.globalAlpha = 0.45;
  context.strokeStyle = theme.paper;
  context.lineWidth = 3;
  context.beginPath();
  for (let x = x0 - height; x < x1; x += 9) {
    context.moveTo(x, y + height);
    context.lineTo(x + height, y);
  }
  context.stroke();
  context.restore();
  context.globalAlpha = 1;
  context.fillStyle = theme.instance;
  context.fillRect(x1 - 2, y, 2, height);
  context.fillStyle = colour;
}

/** A soft end: it may have lasted longer. */
function fade(drawing: Drawing, x1: number, y: number, height: number, width: number): void {
  const { context, theme } = drawing;
  context.fillStyle = theme.paper;
  for (let n = 0; n < width; n += 2) {
    context.globalAlpha = 0.85 * ((n + 2) / width);
    context.fillRect(x1 - width + n, y, 2, height);
  }
}

/** The name, in the wider of the pale and the full part: there it can be read. */
function drawLabel(
  drawing: Drawing, runs: Runs, n: number, kind: string, x0: number, x1: number, waitingUntil: number, y: number, height: number,
): void {
  const { context, theme, names } = drawing;
  const look = runs.look[n];
  const name = names[String(runs.code[n])] ?? "";
  const replay = look & LOOK.replay ? "↻ " : "";
  const value = runs.value[n];
  const more = kind === "operation" && value >= 0 ? ` ${size(value)}` : value >= 0 ? ` ${value}` : "";
  const full = `${replay}${name}${more}`;
  const middle = Math.min(Math.max(waitingUntil, x0), x1);
  const pale = !!(look & LOOK.untimed) || middle - x0 >= x1 - middle;
  const [from, to] = look & LOOK.untimed ? [x0, x1] : pale ? [x0, middle] : [middle, x1];
  const text = shortened(context, full, to - from - 8);
  if (!text) return;
  context.globalAlpha = 1;
  context.font = look & LOOK.inferred ? `italic ${FONT}` : FONT;
  context.fillStyle = pale ? theme.text : theme.onBar(runs.code[n]);
  context.fillText(text, from + 4, y + height / 2 + 0.5);
}

const widths = new Map<string, number>();

/** A text's width in the usual font. */
export function measured(context: CanvasRenderingContext2D, text: string): number {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 5000) widths.clear();
    width = context.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}

/** As much of a name as fits. */
export function shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
  context.font = FONT;
  return fitted(text, room, (piece) => measured(context, piece));
}

/** Stretches of a line without a pixel that nobody knows: pairs of x and value. */
export function knownStretches(points: [number, number][]): [number, number][][] {
  const stretches: [number, number][][] = [];
  let before = NaN;
  for (const point of points) {
    if (!Number.isNaN(point[1])) {
      if (Number.isNaN(before)) stretches.push([]);
      stretches[stretches.length - 1].push(point);
    }
    before = point[1];
  }
  return stretches;
}

/** A line track: bandwidth or a counter by pixel, filled below; nothing where it is not known. */
export function drawLine(drawing: Drawing, line: Line, y: number, scale: number): number {
  const { context, theme, view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const rows = line.strips[0];
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  const points: [number, number][] = [];
  let most = 0;
  for (let place = from; place <= to; place++) {
    const values = tiles.line(zoom, place, rows);
    if (!values) continue;
    for (let n = 0; n < WIDTH; n++) {
      const x = toX(view, (place * WIDTH + n) * 2 ** zoom);
      if (x < -4 || x > width + 4) continue;
      points.push([x, values[n]]);
      if (values[n] > most) most = values[n];
    }
  }
  if (most <= 0) return 0;
  const height = line.stripHeight;
  const top = Math.max(scale, most);
  const step = 2 ** zoom / view.nsPerPixel;
  const base = y + height;
  const stretches = knownStretches(points);
  const trace = (stretch: [number, number][]) => {
    for (const [x, value] of stretch) {
      const level = base - (value / top) * (height - 3);
      context.lineTo(x, level);
      context.lineTo(x + step, level);
    }
  };
  context.globalAlpha = 0.22;
  context.fillStyle = theme.accent;
  context.beginPath();
  for (const stretch of stretches) {
    context.moveTo(stretch[0][0], base);
    trace(stretch);
    context.lineTo(stretch[stretch.length - 1][0] + step, base);
  }
  context.fill();
  context.globalAlpha = 0.9;
  context.strokeStyle = theme.accent;
  context.beginPath();
  for (const stretch of stretches) {
    context.moveTo(stretch[0][0], base - (stretch[0][1] / top) * (height - 3));
    trace(stretch);
  }
  context.stroke();
  context.globalAlpha = 1;
  return most;
}
