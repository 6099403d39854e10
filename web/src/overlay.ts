// Draws lines and marks over the bars: parents, instances, states, how far clocks can be off.
import type { Drawing } from "./drawing";
import type { RowPlace } from "./layout";
import { instanceLinks, type Link, type Places, parentLink, visibleLinks } from "./links";
import type { Item, Marks, Place } from "./types";
import { toX } from "./view";

export interface Overlay {
  marks?: Marks;
  pinned?: Item;
  hovered?: Item;
  lines: boolean;
  hits: Place[];
}

const LEAST_STATE_BAR = 10; // pixels; states of narrower bars could not be told apart
const HIT_ARROW = 4; // pixels
const LEAST_ERROR = 1.5; // pixels

function strokeLinks({ context, width }: Drawing, links: (Link | undefined)[]): void {
  context.beginPath();
  for (const link of links) {
    if (!link || Math.max(link.x0, link.x1) < -50 || Math.min(link.x0, link.x1) > width + 50) continue;
    context.moveTo(link.x0, link.y0);
    context.lineTo(link.x1, link.y1);
  }
  context.stroke();
}

/** Draws everything that lies over the bars. The context is moved by scrolling. */
export function drawOverlay(drawing: Drawing, places: Places, overlay: Overlay): void {
  const { marks, pinned, hovered } = overlay;
  if (overlay.lines && marks) drawLinks(drawing, places, marks);
  if (marks) drawStates(drawing, places, marks.states);
  drawHits(drawing, places, overlay.hits);
  if (pinned) drawFocus(drawing, places, pinned, 2);
  if (hovered) drawFocus(drawing, places, hovered, 1);
  drawing.context.globalAlpha = 1;
}

function drawLinks(drawing: Drawing, places: Places, marks: Marks): void {
  const { context, theme, view } = drawing;
  const { parents, instances } = visibleLinks(marks, places, view.nsPerPixel);
  context.strokeStyle = theme.parent;
  context.globalAlpha = 0.55;
  context.setLineDash([2, 3]);
  strokeLinks(
    drawing,
    parents.map(({ child, parent }) => parentLink(view, places, child, parent)),
  );
  context.setLineDash([]);
  context.strokeStyle = theme.instance;
  context.globalAlpha = 0.45;
  strokeLinks(
    drawing,
    instances.flatMap((members) => instanceLinks(view, places, members)),
  );
}

function drawStates({ context, theme, view, width }: Drawing, places: Places, states: Marks["states"]): void {
  context.fillStyle = theme.paper;
  context.strokeStyle = theme.instance;
  context.globalAlpha = 1;
  for (const state of states) {
    if (state.length_ns / view.nsPerPixel < LEAST_STATE_BAR) continue;
    const at = places.get(state.row);
    const x = toX(view, state.at_ns);
    if (!at || x < -5 || x > width + 5) continue;
    context.beginPath();
    context.arc(x, at.y + 1.5, 2.4, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  }
}

/** Draws a frame around what a search found, and an arrow above it: bars can be narrow. */
function drawHits({ context, theme, view, width }: Drawing, places: Places, hits: Place[]): void {
  context.globalAlpha = 1;
  context.fillStyle = context.strokeStyle = theme.accent;
  for (const hit of hits) {
    const at = places.get(hit.row);
    const x = toX(view, hit.start_ns);
    const length = Math.max(toX(view, hit.end_ns) - x, 2);
    if (!at || x + length < -5 || x > width + 5) continue;
    context.strokeRect(x - 0.5, at.y - 0.5, length + 1, at.height + 1);
    context.beginPath();
    context.moveTo(x - HIT_ARROW, at.y - HIT_ARROW);
    context.lineTo(x + HIT_ARROW, at.y - HIT_ARROW);
    context.lineTo(x, at.y + 1);
    context.fill();
  }
}

/** Draws a frame around a bar, and lines to its instance and its parent. */
function drawFocus(drawing: Drawing, places: Places, item: Item, frameWidth: number): void {
  const { context, theme, view } = drawing;
  const at = places.get(item.row);
  if (at) {
    const x0 = toX(view, item.start_ns);
    const x1 = Math.max(toX(view, item.end_ns), x0 + 2);
    context.globalAlpha = 1;
    context.strokeStyle = theme.text;
    context.lineWidth = frameWidth;
    context.strokeRect(x0 - 0.5, at.y - 0.5, x1 - x0 + 1, at.height + 1);
    context.lineWidth = 1;
    drawError(drawing, at, item);
  }
  context.globalAlpha = 0.95;
  context.lineWidth = 1.4;
  context.strokeStyle = theme.instance;
  strokeLinks(drawing, instanceLinks(view, places, item.instance));
  if (item.parent) {
    context.strokeStyle = theme.parent;
    context.setLineDash([2, 3]);
    strokeLinks(drawing, [parentLink(view, places, item, item.parent)]);
    context.setLineDash([]);
  }
  context.lineWidth = 1;
}

/** Draws how far a bar's start can be off, where that is wide enough to be seen. */
function drawError({ context, theme, view }: Drawing, at: RowPlace, item: Item): void {
  if (!item.error_ns || item.error_ns / view.nsPerPixel < LEAST_ERROR) return;
  const y = at.y + at.height + 2;
  const x0 = toX(view, item.start_ns - item.error_ns);
  const x1 = toX(view, item.start_ns + item.error_ns);
  context.strokeStyle = theme.warn;
  context.beginPath();
  context.moveTo(x0, y - 3);
  context.lineTo(x0, y + 3);
  context.moveTo(x0, y);
  context.lineTo(x1, y);
  context.moveTo(x1, y - 3);
  context.lineTo(x1, y + 3);
  context.stroke();
}
