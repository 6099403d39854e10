// The mouse on the lanes and on the minimap.
import { HEAD, RULER } from "./draw_frame";
import { byId, whileDragging } from "./elements";
import type { Focus } from "./focus";
import type { Page } from "./page";
import type { Tooltip } from "./tooltip";
import { pan, toTime } from "./view";

const DRAG_FROM = 4; // pixels; less is a click
const WHEEL_LINE = 16; // pixels
const LONGEST_TITLE = 1_000; // letters of a lane's name

export function listenToMouse(page: Page, focus: Focus, tooltip: Tooltip): void {
  const { canvas } = page;
  canvas.addEventListener("wheel", (event) => turnWheel(page, event), { passive: false });
  canvas.addEventListener("mousemove", (event) => {
    tooltip.moveMouse(event.offsetX, event.offsetY);
    page.cursor = event.offsetX >= HEAD ? event.offsetX - HEAD : undefined;
    canvas.style.cursor = event.offsetX < HEAD ? "pointer" : event.offsetY < RULER ? "col-resize" : "default";
    showLaneTitle(page, event.offsetX, event.offsetY);
    page.invalidate();
    if (!event.buttons) tooltip.update();
  });
  canvas.addEventListener("mouseleave", () => {
    page.cursor = undefined;
    page.invalidate();
    tooltip.leave();
  });
  canvas.addEventListener("mousedown", (event) => {
    if (event.button !== 0) return;
    canvas.focus();
    if (event.offsetX < HEAD) pressHead(page, event.offsetY);
    else {
      tooltip.hide();
      pressLanes(page, focus, event);
    }
  });
  canvas.addEventListener("dblclick", (event) => {
    if (page.pinned && page.hit(event.offsetX, event.offsetY)) focus.fit();
  });
  listenToMinimap(page);
}

/** Shows the full name of the lane at the mouse: it may be cut on the canvas. */
function showLaneTitle(page: Page, x: number, y: number): void {
  const line = x < HEAD ? page.lineAt(y) : undefined;
  const parts = line ? [line.title, line.state, line.note] : [];
  const title = parts.filter(Boolean).join(" · ").slice(0, LONGEST_TITLE);
  if (page.canvas.title !== title) page.canvas.title = title;
}

function turnWheel(page: Page, event: WheelEvent): void {
  event.preventDefault();
  const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE : 1;
  if (event.ctrlKey || event.metaKey)
    page.zoom(1.0025 ** (event.deltaY * scale), Math.max(event.offsetX - HEAD, 0));
  else if (event.shiftKey) page.setView(pan(page.view, (event.deltaY || event.deltaX) * scale));
  else {
    if (event.deltaX) page.setView(pan(page.view, event.deltaX * scale));
    page.scrollTo(page.scroll + event.deltaY * scale);
  }
}

function pressHead(page: Page, y: number): void {
  const line = page.lineAt(y);
  if (!line?.foldable) return;
  page.toggleLane(line.lane.key);
  page.relayout();
}

/** A click pins a bar. Dragging moves; on the ruler, or with Shift, it selects a span. */
function pressLanes(page: Page, focus: Focus, event: MouseEvent): void {
  const { offsetX: x0, offsetY: y0 } = event;
  const selecting = y0 < RULER || event.shiftKey;
  const begin = {
    view: page.view,
    scroll: page.scroll,
    time: toTime(page.view, x0 - HEAD),
    x: event.clientX,
    y: event.clientY,
  };
  let moved = false;
  const drag = (now: MouseEvent) => {
    const [dx, dy] = [now.clientX - begin.x, now.clientY - begin.y];
    if (!moved && Math.hypot(dx, dy) < DRAG_FROM) return;
    moved = true;
    if (selecting) page.selection = [begin.time, toTime(page.view, x0 - HEAD + dx)];
    else {
      page.setView(pan(begin.view, -dx));
      page.scrollTo(begin.scroll - dy);
    }
    page.invalidate();
  };
  whileDragging(drag, () => {
    if (!moved) void focus.pinAt(x0, y0);
    else if (selecting) {
      page.pinned = undefined;
      void focus.showSelection();
    }
  });
}

function listenToMinimap(page: Page): void {
  const minimap = byId("minimap");
  const move = (now: MouseEvent) => {
    const share = (now.clientX - minimap.getBoundingClientRect().left) / minimap.clientWidth;
    page.setView({
      ...page.view,
      start: share * page.scene.span_ns - (page.view.nsPerPixel * page.width) / 2,
    });
  };
  minimap.addEventListener("mousedown", (event) => {
    move(event);
    whileDragging(move);
  });
}
