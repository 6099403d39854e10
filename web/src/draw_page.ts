// One picture of the lanes: heads, ruler, bars, what lies over them.
import type { Theme } from "./colours";
import { type Drawing, drawStrip } from "./draw_bars";
import { COUNTER, type Line, isLineTrack } from "./layout";
import { BOLD, FONT, measured, shortened } from "./canvas_text";
import { drawLine } from "./lines";
import { type Places, joinedBy } from "./links";
import { type Overlay, drawOverlay } from "./overlay";
import { bandwidth, duration, threeDigits, tickLabel, tickStep } from "./text";
import type { Scene } from "./types";
import { toTime, toX } from "./view";

export const HEAD = 252; // pixels of the lanes' names
export const RULER = 24; // pixels of the time above them
const INDENT = 11;

export interface Picture extends Drawing {
  scene: Scene;
  lines: Line[]; // that can be seen
  places: Places;
  scroll: number;
  height: number; // of the canvas
  overlay: Overlay;
  selection?: [number, number]; // ns
  cursor?: number; // x of the mouse on the time axis
  scales: Map<string, number>; // of lines, by communicator or counter
}

/** Returns the scales of lines that would fit. */
export function paint(picture: Picture): Map<string, number> {
  const { context, theme, width, height, scroll, lines } = picture;
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.textBaseline = "middle";
  context.lineWidth = 1;
  context.globalAlpha = 1;
  context.fillStyle = theme.paper;
  context.fillRect(0, 0, HEAD + width, height);
  const nextScales = new Map<string, number>();
  context.save();
  context.beginPath();
  context.rect(HEAD, RULER, width, height - RULER);
  context.clip();
  context.translate(HEAD, RULER - scroll);
  drawGrid(picture, scroll, height);
  for (const line of lines) drawBars(picture, line, nextScales);
  drawPauses(picture);
  drawDead(picture);
  drawOverlay(context, theme, picture.view, width, picture.places, picture.overlay);
  context.restore();
  for (const line of lines) drawHead(picture, line, RULER + line.y - scroll);
  drawRuler(picture);
  drawSelection(picture);
  return nextScales;
}

function drawGrid(picture: Picture, scroll: number, height: number): void {
  const { context, theme, view, width } = picture;
  const step = tickStep(view.nsPerPixel);
  context.strokeStyle = theme.line;
  context.globalAlpha = 0.6;
  context.beginPath();
  for (let ns = Math.ceil(view.start / step) * step; toX(view, ns) < width; ns += step) {
    const x = Math.round(toX(view, ns)) + 0.5;
    context.moveTo(x, scroll);
    context.lineTo(x, scroll + height);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function drawBars(picture: Picture, line: Line, nextScales: Map<string, number>): void {
  const { context, theme, width } = picture;
  if (line.head && (line.lane.level === "host" || (line.lane.level === "rank" && !line.folded))) {
    context.fillStyle = theme.stripe;
    context.fillRect(0, line.y, width, line.height);
  }
  context.fillStyle = theme.line;
  context.globalAlpha = line.head ? 0.9 : 0.35;
  context.fillRect(0, line.y + line.height - 1, width, 1);
  context.globalAlpha = 1;
  if (isLineTrack(line.kind)) {
    // Lanes of a communicator, and counters of one name, have one scale: the largest that was drawn a moment ago.
    const name = line.kind === COUNTER ? `${line.title} ${line.note}` : line.lane.title;
    const most = drawLine(picture, line, line.y + 1, picture.scales.get(name) ?? 0);
    nextScales.set(name, Math.max(most, nextScales.get(name) ?? 0));
    if (most > 0) {
      context.fillStyle = theme.faint;
      context.font = FONT;
      const plain = line.kind === COUNTER && line.note !== "GB/s";
      context.fillText(plain ? `${threeDigits(most)} ${line.note}` : bandwidth(most), 4, line.y + 9);
    }
    return;
  }
  line.strips.forEach((rows, strip) => {
    const y = line.y + 2 + strip * line.stripHeight;
    drawStrip(picture, rows, line.kind, y, line.stripHeight - 2);
  });
}

/** While a process only counted its calls: that there are no bars says nothing. */
function drawPauses(picture: Picture): void {
  const { context, theme, view, width, scene, lines } = picture;
  for (const line of lines) {
    const pauses = line.process === undefined ? [] : (scene.pauses[line.process] ?? []);
    for (const [start, end] of pauses) {
      const x0 = Math.max(toX(view, start), 0);
      const x1 = Math.min(toX(view, end), width);
      if (x1 <= x0) continue;
      context.globalAlpha = 0.12;
      context.fillStyle = theme.faint;
      context.fillRect(x0, line.y, x1 - x0, line.height - 1);
      context.globalAlpha = 1;
      if (!line.head || x1 - x0 < 60) continue;
      context.font = FONT;
      context.fillText(shortened(context, "counted only", x1 - x0 - 10), x0 + 5, line.y + line.height / 2);
    }
  }
}

/** After a process was last heard of: nothing more can come. */
function drawDead(picture: Picture): void {
  const { context, theme, view, width, scene, lines } = picture;
  for (const line of lines) {
    const end = line.process === undefined ? null : scene.ends[line.process];
    if (end === null || end === undefined) continue;
    const x = Math.max(toX(view, end), 0);
    if (x >= width) continue;
    context.fillStyle = theme.dead;
    context.fillRect(x, line.y, width - x, line.height - 1);
    context.fillStyle = theme.instance;
    context.globalAlpha = 0.7;
    context.fillRect(x, line.y, 1, line.height - 1);
    context.globalAlpha = 1;
    if (line.head && line.state && width - x > 130) {
      context.font = FONT;
      context.fillText(shortened(context, line.state, width - x - 10), x + 5, line.y + line.height / 2);
    }
  }
}

function drawHead(picture: Picture, line: Line, y: number): void {
  const { context, theme } = picture;
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
  const title = shortened(context, line.title, HEAD - x - 8, font);
  const titleWidth = measured(context, title, font);
  context.font = font;
  context.fillStyle = line.head ? theme.text : theme.faint;
  context.fillText(title, x, middle);
  x += titleWidth + 7;
  const clock = line.head && line.lane.level === "host" ? clockNote(picture, line) : "";
  const note = [line.state ? `✗ ${line.state}` : "", line.note, clock].filter(Boolean).join(" · ");
  context.font = FONT;
  context.fillStyle = line.state ? theme.warn : theme.faint;
  if (note && HEAD - x > 24) context.fillText(shortened(context, note, HEAD - x - 8), x, middle);
}

function clockNote(picture: Picture, line: Line): string {
  const { scene } = picture;
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

function drawRuler(picture: Picture): void {
  const { context, theme, view, width, cursor } = picture;
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, HEAD + width, RULER);
  context.fillStyle = theme.line;
  context.fillRect(0, RULER - 1, HEAD + width, 1);
  context.fillRect(HEAD - 1, 0, 1, picture.height);
  context.font = FONT;
  context.fillStyle = theme.faint;
  context.fillText(
    shortened(
      context,
      [`${duration(view.nsPerPixel * width)} shown`, joinedNote(picture)].filter(Boolean).join(" · "),
      HEAD - 16,
    ),
    10,
    RULER / 2,
  );
  const step = tickStep(view.nsPerPixel);
  context.save();
  context.beginPath();
  context.rect(HEAD, 0, width, RULER);
  context.clip();
  for (let ns = Math.floor(view.start / step) * step; toX(view, ns) < width; ns += step) {
    const x = HEAD + Math.round(toX(view, ns));
    context.fillStyle = theme.faint;
    context.fillRect(x, RULER - 6, 1, 6);
    const label = tickLabel(ns, step);
    // Half a number would be another one.
    if (x >= HEAD - 4 && x + 4 + measured(context, label) <= HEAD + width)
      context.fillText(label, x + 4, RULER / 2 - 1);
  }
  if (cursor !== undefined) {
    context.fillStyle = theme.accent;
    context.fillRect(HEAD + cursor, 0, 1, RULER);
    const text = tickLabel(Math.round(toTime(view, cursor)), step / 100);
    const room = measured(context, text) + 8;
    const x = Math.min(HEAD + cursor + 2, HEAD + width - room);
    context.fillStyle = theme.panel;
    context.fillRect(x, 1, room, RULER - 3);
    context.fillStyle = theme.accent;
    context.fillText(text, x + 4, RULER / 2);
  }
  context.restore();
}

/** That not everything is joined which could be. */
function joinedNote({ overlay, places, view }: Picture): string {
  if (!overlay.lines || !overlay.marks) return "";
  const { instances, ofInstances } = joinedBy(overlay.marks, places, view.nsPerPixel);
  return instances.length < ofInstances ? `${instances.length} of ${ofInstances} instances joined` : "";
}

function drawSelection(picture: Picture): void {
  const { context, theme, view, width, height, selection } = picture;
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
  const room = measured(context, text, BOLD);
  context.font = BOLD;
  if (x1 - x0 > room + 4) context.fillText(text, HEAD + (x0 + x1 - room) / 2, RULER + 10);
}
