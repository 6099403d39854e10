// Draws what surrounds the bars: the names of lanes, the ruler, the selected span.

import { BOLD, FONT, fitCanvasText, textWidth } from "./canvas_text";
import type { Theme } from "./colours";
import type { Drawing } from "./drawing";
import type { Line } from "./layout";
import { type Places, visibleLinks } from "./links";
import type { Overlay } from "./overlay";
import { duration, tickLabel, tickStep } from "./text";
import type { Scene } from "./types";
import { toTime, toX } from "./view";

export const HEAD = 252; // pixels of the lanes' names
export const RULER = 24; // pixels of the ruler above the lanes
const INDENT = 11;

export interface PageDrawing extends Drawing {
  scene: Scene;
  lines: Line[]; // in view
  places: Places;
  scroll: number;
  height: number; // of the canvas
  overlay: Overlay;
  moment?: number; // ns; where a jump led
  selection?: [number, number]; // ns
  cursor?: number; // x of the mouse on the time axis
  scales: Map<string, number>; // of line tracks, by communicator or counter
}

export function drawHead(page: PageDrawing, line: Line, y: number): void {
  const { context, theme } = page;
  context.fillStyle = line.lane.level === "host" && line.head ? theme.stripe : theme.panel;
  context.fillRect(0, y, HEAD, line.height);
  context.fillStyle = theme.line;
  context.fillRect(0, y + line.height - 1, HEAD, 1);
  const middle = line.head ? y + Math.min(line.height, 22) / 2 : y + Math.min(line.height, 30) / 2;
  let x = 8 + line.depth * INDENT + (line.head ? 0 : 14);
  if (line.head && line.foldable) drawTriangle(context, theme, x, middle, line.folded);
  if (line.head) x += 13;
  const bold = line.head && (line.lane.level === "host" || line.lane.level === "rank");
  const font = bold ? BOLD : FONT;
  const title = fitCanvasText(context, line.title, HEAD - x - 8, font);
  const titleWidth = textWidth(context, title, font);
  context.font = font;
  context.fillStyle = line.head ? theme.text : theme.faint;
  context.fillText(title, x, middle);
  x += titleWidth + 7;
  const clock = line.head && line.lane.level === "host" ? clockNote(page, line) : "";
  const note = [line.state ? `✗ ${line.state}` : "", line.note, clock].filter(Boolean).join(" · ");
  context.font = FONT;
  context.fillStyle = line.state ? theme.warn : theme.faint;
  if (note && HEAD - x > 24) context.fillText(fitCanvasText(context, note, HEAD - x - 8), x, middle);
}

function clockNote(page: PageDrawing, line: Line): string {
  const { scene } = page;
  if (!scene.has_model) return "by the wall clock";
  const error = scene.errors_ns[line.lane.key];
  if (error === null || error === undefined) return "by the wall clock";
  return error > 0 ? `clock ±${duration(error)}` : "";
}

function drawTriangle(
  context: CanvasRenderingContext2D,
  theme: Theme,
  x: number,
  y: number,
  folded: boolean,
): void {
  context.fillStyle = theme.faint;
  context.beginPath();
  if (folded) {
    context.moveTo(x, y - 4);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 4);
  } else {
    context.moveTo(x - 1, y - 3);
    context.lineTo(x + 7, y - 3);
    context.lineTo(x + 3, y + 3);
  }
  context.fill();
}

export function drawRuler(page: PageDrawing): void {
  const { context, theme, view, width } = page;
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, HEAD + width, RULER);
  context.fillStyle = theme.line;
  context.fillRect(0, RULER - 1, HEAD + width, 1);
  context.fillRect(HEAD - 1, 0, 1, page.height);
  context.font = FONT;
  context.fillStyle = theme.faint;
  const notes = [`${duration(view.nsPerPixel * width)} shown`, linksNote(page)].filter(Boolean).join(" · ");
  context.fillText(fitCanvasText(context, notes, HEAD - 16), 10, RULER / 2);
  context.save();
  context.beginPath();
  context.rect(HEAD, 0, width, RULER);
  context.clip();
  drawTicks(page);
  drawHitTicks(page);
  drawCursor(page);
  context.restore();
  drawMoment(page);
}

/** Draws a line through all lanes at the time that a jump led to. */
function drawMoment({ context, theme, view, moment, width, height }: PageDrawing): void {
  const x = moment === undefined ? -1 : toX(view, moment);
  if (x < 0 || x > width) return;
  context.fillStyle = theme.accent;
  context.fillRect(HEAD + x, 0, 1, height);
}

function drawTicks({ context, theme, view, width }: PageDrawing): void {
  const step = tickStep(view.nsPerPixel);
  for (let ns = Math.floor(view.start / step) * step; toX(view, ns) < width; ns += step) {
    const x = HEAD + Math.round(toX(view, ns));
    context.fillStyle = theme.faint;
    context.fillRect(x, RULER - 6, 1, 6);
    const label = tickLabel(ns, step);
    // A number that is cut would be another number.
    const fits = x >= HEAD - 4 && x + 4 + textWidth(context, label) <= HEAD + width;
    if (fits) context.fillText(label, x + 4, RULER / 2 - 1);
  }
}

/** Draws where in time a search found something, also in lanes that are not in view. */
function drawHitTicks({ context, theme, view, overlay }: PageDrawing): void {
  context.fillStyle = theme.accent;
  for (const { start_ns } of overlay.hits) context.fillRect(HEAD + toX(view, start_ns) - 1, RULER - 5, 2, 4);
}

/** Draws the time at the mouse. */
function drawCursor({ context, theme, view, width, cursor }: PageDrawing): void {
  if (cursor === undefined) return;
  context.fillStyle = theme.accent;
  context.fillRect(HEAD + cursor, 0, 1, RULER);
  const text = tickLabel(Math.round(toTime(view, cursor)), tickStep(view.nsPerPixel) / 100);
  const room = textWidth(context, text) + 8;
  const x = Math.min(HEAD + cursor + 2, HEAD + width - room);
  context.fillStyle = theme.panel;
  context.fillRect(x, 1, room, RULER - 3);
  context.fillStyle = theme.accent;
  context.fillText(text, x + 4, RULER / 2);
}

/** Says where fewer instances are joined by lines than could be. */
function linksNote({ overlay, places, view }: PageDrawing): string {
  if (!overlay.lines || !overlay.marks) return "";
  const { instances, ofInstances } = visibleLinks(overlay.marks, places, view.nsPerPixel);
  return instances.length < ofInstances ? `${instances.length} of ${ofInstances} instances joined` : "";
}

export function drawSelection(page: PageDrawing): void {
  const { context, theme, view, width, height, selection } = page;
  if (!selection) return;
  const x0 = Math.max(toX(view, Math.min(...selection)), 0);
  const x1 = Math.min(toX(view, Math.max(...selection)), width);
  if (x1 < 0 || x0 > width) return;
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.1;
  context.fillRect(HEAD + x0, RULER, x1 - x0, height - RULER);
  context.globalAlpha = 0.8;
  context.fillRect(HEAD + x0, 0, 1, height);
  context.fillRect(HEAD + x1, 0, 1, height);
  const text = duration(Math.abs(selection[1] - selection[0]));
  context.globalAlpha = 1;
  const room = textWidth(context, text, BOLD);
  context.font = BOLD;
  if (x1 - x0 > room + 4) context.fillText(text, HEAD + (x0 + x1 - room) / 2, RULER + 10);
}
