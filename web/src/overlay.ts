// Lines and marks over the bars: parents, instances, states, error bars.
import type { Theme } from "./colours";
import type { RowPlace } from "./layout";
import { type Link, type Places, instanceLinks, joinedBy, parentLink } from "./links";
import type { Item, Marks } from "./types";
import { type View, toX } from "./view";

function stroke(context: CanvasRenderingContext2D, links: Link[], width: number): void {
  context.beginPath();
  for (const link of links) {
    if (Math.max(link.x0, link.x1) < -50 || Math.min(link.x0, link.x1) > width + 50) continue;
    context.moveTo(link.x0, link.y0);
    context.lineTo(link.x1, link.y1);
  }
  context.stroke();
}

export interface Overlay {
  marks?: Marks;
  pinned?: Item;
  hovered?: Item;
  lines: boolean;
}

/** Draws everything that lies over the bars; y is already moved by scrolling. */
export function drawOverlay(
  context: CanvasRenderingContext2D,
  theme: Theme,
  view: View,
  width: number,
  places: Places,
  overlay: Overlay,
): void {
  const { marks, pinned, hovered } = overlay;
  const focus = [pinned, hovered].filter((item): item is Item => item !== undefined);
  if (overlay.lines && marks) {
    const { parents, instances } = joinedBy(marks, places, view.nsPerPixel);
    context.strokeStyle = theme.parent;
    context.globalAlpha = 0.55;
    context.setLineDash([2, 3]);
    stroke(
      context,
      parents
        .map((one) => parentLink(view, places, one.child, one.parent))
        .filter((link): link is Link => !!link),
      width,
    );
    context.setLineDash([]);
    context.strokeStyle = theme.instance;
    context.globalAlpha = 0.45;
    stroke(
      context,
      instances.flatMap((members) => instanceLinks(view, places, members)),
      width,
    );
  }
  if (marks) drawStates(context, theme, view, width, places, marks.states);
  for (const item of focus) drawFocus(context, theme, view, width, places, item, item === pinned);
  context.globalAlpha = 1;
}

function drawStates(
  context: CanvasRenderingContext2D,
  theme: Theme,
  view: View,
  width: number,
  places: Places,
  states: Marks["states"],
): void {
  context.fillStyle = theme.paper;
  context.strokeStyle = theme.instance;
  context.globalAlpha = 1;
  for (const state of states) {
    if (state.length_ns / view.nsPerPixel < 10) continue; // nobody could tell them apart
    const at = places.get(state.row);
    const x = toX(view, state.at_ns);
    if (!at || x < -5 || x > width + 5) continue;
    context.beginPath();
    context.arc(x, at.y + 1.5, 2.4, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  }
}

function drawFocus(
  context: CanvasRenderingContext2D,
  theme: Theme,
  view: View,
  width: number,
  places: Places,
  item: Item,
  pinned: boolean,
): void {
  const at = places.get(item.row);
  if (at) {
    const x0 = toX(view, item.start_ns);
    const x1 = Math.max(toX(view, item.end_ns), x0 + 2);
    context.globalAlpha = 1;
    context.strokeStyle = theme.text;
    context.lineWidth = pinned ? 2 : 1;
    context.strokeRect(x0 - 0.5, at.y - 0.5, x1 - x0 + 1, at.height + 1);
    context.lineWidth = 1;
    drawError(context, theme, view, at, item);
  }
  context.globalAlpha = 0.95;
  context.lineWidth = 1.4;
  context.strokeStyle = theme.instance;
  stroke(context, instanceLinks(view, places, item.instance), width);
  if (item.parent) {
    const link = parentLink(view, places, item, item.parent);
    context.strokeStyle = theme.parent;
    context.setLineDash([2, 3]);
    if (link) stroke(context, [link], width);
    context.setLineDash([]);
  }
  context.lineWidth = 1;
}

/** How far the bar's beginning may be off: a whisker, where it is wide enough to be seen. */
function drawError(
  context: CanvasRenderingContext2D,
  theme: Theme,
  view: View,
  at: RowPlace,
  item: Item,
): void {
  if (!item.error_ns || item.error_ns / view.nsPerPixel < 1.5) return;
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
