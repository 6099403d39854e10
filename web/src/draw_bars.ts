// Draws lanes from tiles: bars with waiting apart from moving data, looks, names.
import type { Theme } from "./colours";
import { drawNames } from "./names";
import { type Picture, mustWait, pictureOf, snapped, waitForNext } from "./tile_cache";
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

const BEYOND = 12; // pixels outside of what is seen, where ends and frames of longer bars are
const COARSER = 6; // zooms to look for something to show meanwhile

/** Draws the rows of a strip over each other; y is on the canvas. */
export function drawStrip(drawing: Drawing, rows: number[], kind: string, y: number, height: number): void {
  const { view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  const strip = { rows, kind, y, height };
  for (let place = from; place <= to; place++) {
    const found = rows.map((row) => tiles.get(zoom, place, row));
    const tile = {
      zoom,
      place,
      known: found.filter((runs): runs is Runs => runs !== undefined && runs.length > 0),
    };
    const [least, most] = edgesOf(view, tile);
    const missing = rows.filter((_, n) => found[n] === undefined);
    if (missing.length) drawCoarser(drawing, { ...strip, rows: missing }, zoom, place, least, most);
    drawTile(drawing, strip, tile, least, most, missing.length > 0);
  }
  // Names may reach into the next tile.
  for (let place = from; place <= to; place++) {
    const known = rows
      .map((row) => tiles.peek(zoom, place, row))
      .filter((runs): runs is Runs => runs !== undefined && runs.length > 0);
    drawNames(drawing, strip, { zoom, place, known }, place === from);
  }
}

export interface Strip {
  rows: number[];
  kind: string;
  y: number;
  height: number;
}

export interface Tile {
  zoom: number;
  place: number;
  known: Runs[]; // of the rows of a strip, the last on top
}

/** Where a tile begins and ends on the screen. */
function edgesOf(view: View, { zoom, place }: Tile): [number, number] {
  const span = WIDTH * 2 ** zoom;
  return [snapped(toX(view, place * span)), snapped(toX(view, (place + 1) * span))];
}

const PICTURE_FROM = 6; // runs in a tile: fewer are drawn as quickly

/** A tile's bars between two edges. Many are drawn once, then moved as a picture. `passing`: they are to be replaced soon. */
function drawTile(
  drawing: Drawing,
  strip: Strip,
  tile: Tile,
  least: number,
  most: number,
  passing: boolean,
): void {
  const { view, theme } = drawing;
  const { zoom, place, known } = tile;
  const magnified = 2 ** zoom > view.nsPerPixel;
  const scale = magnified ? 1 : 2 ** zoom / view.nsPerPixel;
  const runs = known.reduce((sum, one) => sum + one.length, 0);
  if (runs < PICTURE_FROM || (magnified && !passing)) {
    if (!runs) return;
    const { context } = drawing;
    context.save();
    context.beginPath();
    context.rect(least, strip.y - 1, most - least, strip.height + 2);
    context.clip();
    for (const one of known) drawRuns(drawing, one, tile, strip, least, most);
    context.restore();
    return;
  }
  const key = `${zoom}/${place}/${strip.kind}/${strip.height}/${devicePixelRatio}/${keyOf(strip.rows)}`;
  if (!passing && mustWait(key, known, theme) && drawCoarser(drawing, strip, zoom, place, least, most)) {
    waitForNext();
    return;
  }
  const picture = pictureOf(key, known, theme, scale, WIDTH * scale + 1, strip.height, passing, (context) => {
    const alone = {
      ...drawing,
      context,
      width: WIDTH * scale,
      view: { start: place * WIDTH * 2 ** zoom, nsPerPixel: 2 ** zoom / scale },
    };
    for (const one of known) drawRuns(alone, one, tile, { ...strip, y: 0 }, 0, WIDTH * scale + 1);
  });
  drawPicture(drawing, picture, tile, strip.y, least, most);
}

const keys = new WeakMap<number[], string>();

export function keyOf(rows: number[]): string {
  const key = keys.get(rows) ?? rows.join();
  keys.set(rows, key);
  return key;
}

/** A picture of a tile where that is, between two edges. */
export function drawPicture(
  { context, view }: Drawing,
  picture: Picture,
  tile: Tile,
  y: number,
  least: number,
  most: number,
): void {
  const [left, right] = edgesOf(view, tile);
  const [x0, x1] = [Math.max(left, least), Math.min(right, most)];
  if (x1 <= x0) return;
  const { canvas, scale } = picture;
  const stretch = (scale * view.nsPerPixel * devicePixelRatio) / 2 ** tile.zoom;
  context.globalAlpha = 1;
  context.drawImage(
    canvas,
    (x0 - left) * stretch,
    0,
    (x1 - x0) * stretch,
    canvas.height,
    x0,
    y,
    x1 - x0,
    canvas.height / devicePixelRatio,
  );
}

/** What coarser tiles show, where the right ones are not there yet; whether there are any. */
function drawCoarser(
  drawing: Drawing,
  strip: Strip,
  zoom: number,
  place: number,
  least: number,
  most: number,
): boolean {
  for (let up = 1; up <= COARSER; up++) {
    const above = Math.floor(place / 2 ** up);
    const known = strip.rows
      .map((row) => drawing.tiles.peek(zoom + up, above, row))
      .filter((runs): runs is Runs => runs !== undefined);
    if (!known.length) continue;
    drawTile(drawing, strip, { zoom: zoom + up, place: above, known }, least, most, true);
    return true;
  }
  return false;
}

/** One row's bars of a tile, between two edges, where something clips them: they go on in the next tile. */
function drawRuns(
  drawing: Drawing,
  runs: Runs,
  { zoom, place }: Tile,
  { kind, y, height }: Strip,
  least: number,
  most: number,
): void {
  const { context, theme, view, width } = drawing;
  const scale = 2 ** zoom / view.nsPerPixel;
  const origin = toX(view, place * WIDTH * 2 ** zoom);
  const [left, right] = [Math.max(least, 0) - BEYOND, Math.min(most, width) + BEYOND];
  let colour = "";
  for (let n = 0; n < runs.length; n++) {
    const exact0 = origin + runs.x0[n] * scale;
    const exact1 = origin + runs.x1[n] * scale;
    if (exact1 < left || exact0 > right) continue;
    const x0 = Math.max(exact0, left);
    const x1 = Math.min(Math.max(exact1, exact0 + 1), right);
    if (x1 <= x0) continue;
    const look = runs.look[n];
    const next = theme.bars(runs.code[n]);
    if (next !== colour) {
      context.fillStyle = next;
      context.strokeStyle = next;
      colour = next;
    }
    if (runs.count[n] === 1 && exact1 - exact0 >= 3) {
      drawBar(drawing, runs, n, exact0, exact1, x0, x1, y, height, look);
      colour = "";
    } else drawThin(drawing, runs, n, x0, x1, y, height, look, kind);
  }
  context.globalAlpha = 1;
}

/** Several bars in few pixels, or one that is hardly wider than a line. */
function drawThin(
  drawing: Drawing,
  runs: Runs,
  n: number,
  x0: number,
  x1: number,
  y: number,
  height: number,
  look: number,
  kind: string,
): void {
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
  drawing: Drawing,
  runs: Runs,
  n: number,
  exact0: number,
  exact1: number,
  x0: number,
  x1: number,
  y: number,
  height: number,
  look: number,
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
  if (look & LOOK.open) drawOpen(drawing, colour, exact0, wire0, x1, y, height);
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
function drawOpen(
  drawing: Drawing,
  colour: string,
  begin: number,
  x0: number,
  x1: number,
  y: number,
  height: number,
): void {
  const { context, theme } = drawing;
  context.save();
  context.beginPath();
  context.rect(x0, y, x1 - x0, height);
  context.clip();
  context.globalAlpha = 0.32;
  context.strokeStyle = theme.paper;
  context.lineWidth = 3;
  context.beginPath();
  for (let x = begin + Math.floor((x0 - height - begin) / 9) * 9; x < x1; x += 9) {
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
