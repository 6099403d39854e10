// The tooltip at the mouse: everything about the bar there.
import { fillTooltip } from "./bar_info";
import { byId, element } from "./elements";
import type { Hit } from "./hit";
import type { Page } from "./page";

const DELAY_MS = 40; // over a bar, before it is requested

export class Tooltip {
  private box = byId("tooltip");
  private timer = 0;
  private mouse = { x: -1, y: -1 }; // on the canvas
  private hit?: Hit; // the bar that the box shows

  constructor(private page: Page) {}

  moveMouse(x: number, y: number): void {
    this.mouse = { x, y };
  }

  hide(): void {
    this.box.hidden = true;
  }

  /** The mouse has left the canvas. */
  leave(): void {
    this.moveMouse(-1, -1);
    this.update();
  }

  /** Shows the bar at the mouse, if there is one. */
  update(): void {
    window.clearTimeout(this.timer);
    const hit = this.page.hit(this.mouse.x, this.mouse.y);
    if (!hit) {
      this.hide();
      if (this.page.hovered) this.page.invalidate();
      this.page.hovered = undefined;
    } else if (this.page.hovered && this.hit && isSameBar(hit, this.hit)) {
      this.box.hidden &&= this.isPinned;
      this.moveBox();
    } else this.timer = window.setTimeout(() => void this.show(hit), DELAY_MS);
  }

  private async show(hit: Hit): Promise<void> {
    const { page } = this;
    const item = await page.response(page.source.item(hit.row, hit.item, page.filters.operations));
    const now = page.hit(this.mouse.x, this.mouse.y);
    if (!item || !now || !isSameBar(now, hit)) return;
    page.hovered = item;
    this.hit = hit;
    fillTooltip(this.box, item);
    if (hit.count > 1) {
      const note = `the longest of ${hit.count.toLocaleString("en-US")} here: zoom in to see them`;
      this.box.prepend(element("div", "look", note));
    }
    this.box.hidden = this.isPinned;
    this.moveBox();
    page.invalidate();
  }

  /** Whether the bar is the pinned one: the panel shows the same. */
  private get isPinned(): boolean {
    const { pinned, hovered } = this.page;
    return !!pinned && !!hovered && isSameBar(pinned, hovered);
  }

  /** Moves the box next to the mouse, but not off the page. */
  private moveBox(): void {
    const canvas = this.page.canvas.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const x = canvas.left + this.mouse.x;
    const y = canvas.top + this.mouse.y;
    this.box.style.left = `${x + 16 + width > innerWidth ? Math.max(x - width - 12, 4) : x + 16}px`;
    this.box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  }
}

interface BarPlace {
  row: number;
  item: number;
}

function isSameBar(first: BarPlace, second: BarPlace): boolean {
  return first.row === second.row && first.item === second.item;
}
