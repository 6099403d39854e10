// Draws bars: waiting apart from moving data, and what their look says.
import type { Drawing, Edges, Strip, Tile } from "./drawing";
import { KIND, LOOK, type Runs, TILE_WIDTH } from "./generated";
import { toX } from "./view";

const MARGIN = 12; // pixels outside the edges, where ends and frames of longer bars may be

/** A bar on the screen. */
interface Box {
  exact0: number; // where it begins and ends
  exact1: number;
  x0: number; // the part that is drawn
  x1: number;
  y: number;
  height: number;
}

/** Draws one row of a tile between two edges. The caller clips: bars go on in the next tile. */
export function drawRuns(
  drawing: Drawing,
  runs: Runs,
  { zoom, place }: Tile,
  { kind, y, height }: Strip,
  edges: Edges,
): void {
  const { context, theme, view, width } = drawing;
  const scale = 2 ** zoom / view.nsPerPixel;
  const origin = toX(view, place * TILE_WIDTH * 2 ** zoom);
  const [left, right] = [Math.max(edges[0], 0) - MARGIN, Math.min(edges[1], width) + MARGIN];
  let colour = "";
  for (let n = 0; n < runs.length; n++) {
    const exact0 = origin + runs.x0[n] * scale;
    const exact1 = origin + runs.x1[n] * scale;
    if (exact1 < left || exact0 > right) continue;
    const x0 = Math.max(exact0, left);
    const x1 = Math.min(Math.max(exact1, exact0 + 1), right);
    if (x1 <= x0) continue;
    const next = theme.bars(runs.code[n]);
    if (next !== colour) {
      context.fillStyle = next;
      context.strokeStyle = next;
      colour = next;
    }
    if (runs.count[n] === 1 && exact1 - exact0 >= 3) {
      drawBar(drawing, runs, n, { exact0, exact1, x0, x1, y, height });
      colour = "";
    } else {
      const least = kind === KIND.communicator ? 2.5 : 1;
      drawThin(context, runs, n, x0, Math.max(x1 - x0, least), y, height);
    }
  }
  context.globalAlpha = 1;
}

/** Several bars in few pixels, or one that is hardly wider than a line. */
function drawThin(
  context: CanvasRenderingContext2D,
  runs: Runs,
  n: number,
  x: number,
  width: number,
  y: number,
  height: number,
): void {
  const wait = runs.wait[n] / 255;
  const strength = 0.3 + (0.7 * runs.fill[n]) / 255;
  if (runs.look[n] & LOOK.untimed && !runs.wait[n]) {
    context.globalAlpha = 0.55 * strength;
    context.fillRect(x, y + height * 0.3, width, height * 0.4);
    return;
  }
  if (wait > 0.02) {
    context.globalAlpha = 0.32 * strength;
    context.fillRect(x, y, width, height * wait);
  }
  context.globalAlpha = strength;
  context.fillRect(x, y + height * wait, width, height * (1 - wait));
}

function drawBar(drawing: Drawing, runs: Runs, n: number, box: Box): void {
  const { context, theme } = drawing;
  const { exact0, exact1, x0, x1, y, height } = box;
  const look = runs.look[n];
  const width = x1 - x0;
  if (look & LOOK.untimed) {
    drawHollow(context, x0, y, width, height);
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
  if (look & LOOK.open) drawOpenEnd(drawing, theme.bars(runs.code[n]), { ...box, x0: wire0 });
  if (look & LOOK.lowerBound) drawSoftEnd(drawing, x1, y, height, Math.min(10, width / 2));
  if (look & LOOK.repaired) drawCutCorner(drawing, x0, y);
  if (look & LOOK.mismatch) drawFrame(drawing, x0, y, width, height);
  // A hairline keeps neighbours apart.
  context.globalAlpha = 0.5;
  context.fillStyle = theme.paper;
  if (exact1 <= x1 + 0.5 && width > 4) context.fillRect(x1 - 0.7, y, 0.7, height);
}

/** No GPU time, only what the host saw. */
function drawHollow(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  context.globalAlpha = 0.14;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 0.9;
  context.setLineDash([3, 2]);
  context.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
  context.setLineDash([]);
}

/** Stamps were repaired. */
function drawCutCorner({ context, theme }: Drawing, x: number, y: number): void {
  context.globalAlpha = 0.9;
  context.fillStyle = theme.paper;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + 6, y);
  context.lineTo(x, y + 6);
  context.fill();
}

/** Ranks disagree. */
function drawFrame({ context, theme }: Drawing, x: number, y: number, width: number, height: number): void {
  context.globalAlpha = 1;
  context.strokeStyle = theme.instance;
  context.lineWidth = 2;
  context.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), height - 2);
  context.lineWidth = 1;
}

/** Not ended when the capture ended: slanted stripes, and a red end. */
function drawOpenEnd({ context, theme }: Drawing, colour: string, { exact0, x0, x1, y, height }: Box): void {
  context.save();
  context.beginPath();
  context.rect(x0, y, x1 - x0, height);
  context.clip();
  context.globalAlpha = 0.32;
  context.strokeStyle = theme.paper;
  context.lineWidth = 3;
  context.beginPath();
  for (let x = exact0 + Math.floor((x0 - height - exact0) / 9) * 9; x < x1; x += 9) {
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

/** It may have lasted longer. */
function drawSoftEnd(
  { context, theme }: Drawing,
  x1: number,
  y: number,
  height: number,
  width: number,
): void {
  context.fillStyle = theme.paper;
  for (let n = 0; n < width; n += 2) {
    context.globalAlpha = 0.85 * ((n + 2) / width);
    context.fillRect(x1 - width + n, y, 2, height);
  }
}
