// Draws the lanes: bars, lines, what lies over them, their names and the ruler.
import { FONT, fitCanvasText } from "./canvas_text";
import { drawHead, drawRuler, drawSelection, HEAD, type PageDrawing, RULER } from "./draw_frame";
import { drawStrip } from "./draw_tiles";
import { KIND } from "./generated";
import { isLineTrack, type Line, showsOperations } from "./layout";
import { drawLine } from "./line_tracks";
import { drawOverlay } from "./overlay";
import { bandwidth, threeDigits, tickStep } from "./text";
import { toX } from "./view";

/** Draws everything; the scales of line tracks that the values in view need. */
export function drawPage(page: PageDrawing): Map<string, number> {
  const { context, theme, width, height, scroll, lines } = page;
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
  drawGrid(page, scroll, height);
  for (const line of lines) drawContent(page, line, nextScales);
  drawPauses(page);
  drawProcessEnds(page);
  drawOverlay(page, page.places, page.overlay);
  context.restore();
  for (const line of lines) drawHead(page, line, RULER + line.y - scroll);
  drawRuler(page);
  drawSelection(page);
  return nextScales;
}

function drawGrid(page: PageDrawing, scroll: number, height: number): void {
  const { context, theme, view, width } = page;
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

function drawContent(page: PageDrawing, line: Line, nextScales: Map<string, number>): void {
  const { context, theme, width } = page;
  if (line.head && (line.lane.level === "host" || (line.lane.level === "rank" && !line.folded))) {
    context.fillStyle = theme.stripe;
    context.fillRect(0, line.y, width, line.height);
  }
  context.fillStyle = theme.line;
  context.globalAlpha = line.head ? 0.9 : 0.35;
  context.fillRect(0, line.y + line.height - 1, width, 1);
  context.globalAlpha = 1;
  if (isLineTrack(line.kind)) {
    drawLineTrack(page, line, nextScales);
    return;
  }
  for (const [strip, rows] of line.strips.entries()) {
    const y = line.y + 2 + strip * line.stripHeight;
    drawStrip(page, {
      rows,
      kind: showsOperations(line) ? KIND.operation : line.kind,
      y,
      height: line.stripHeight - 2,
    });
  }
}

/** Draws a line. Those of a communicator, and of counters of one name, have one scale: the largest
 * value of the frame before.
 */
function drawLineTrack(page: PageDrawing, line: Line, nextScales: Map<string, number>): void {
  const { context, theme } = page;
  const isCounter = line.kind === KIND.counter;
  const name = isCounter ? `${line.title} ${line.note}` : line.lane.title;
  const most = drawLine(page, line, line.y + 1, page.scales.get(name) ?? 0);
  nextScales.set(name, Math.max(most, nextScales.get(name) ?? 0));
  if (most <= 0) return;
  context.fillStyle = theme.faint;
  context.font = FONT;
  const isBandwidth = !isCounter || line.note === "GB/s";
  context.fillText(isBandwidth ? bandwidth(most) : `${threeDigits(most)} ${line.note}`, 4, line.y + 9);
}

/** Marks times in which a process only counted its calls: there are no bars, and that says nothing. */
function drawPauses(page: PageDrawing): void {
  const { context, theme, view, width, scene, lines } = page;
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
      context.fillText(
        fitCanvasText(context, "counted only", x1 - x0 - 10),
        x0 + 5,
        line.y + line.height / 2,
      );
    }
  }
}

/** Marks the time after the last sign of a process. */
function drawProcessEnds(page: PageDrawing): void {
  const { context, theme, view, width, scene, lines } = page;
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
      context.fillText(fitCanvasText(context, line.state, width - x - 10), x + 5, line.y + line.height / 2);
    }
  }
}
