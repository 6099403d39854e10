// The box at the mouse.
import { element } from "./elements";
import type { Hit } from "./hit";
import type { Page } from "./page";
import { tooltip } from "./panel";

const PATIENCE_MS = 40; // over a bar before it is asked for

export class Hover {
  private box = document.getElementById("tooltip") as HTMLElement;
  private timer = 0;
  private mouse = { x: -1, y: -1 }; // on the canvas
  private told?: Hit; // what the box is about

  constructor(private page: Page) {}

  /** The mouse is elsewhere on the canvas. */
  move(x: number, y: number): void {
    this.mouse = { x, y };
  }

  hide(): void {
    this.box.hidden = true;
  }

  leave(): void {
    this.move(-1, -1);
    this.look();
  }

  /** Tells about the bar at the mouse, if there is one. */
  look(): void {
    window.clearTimeout(this.timer);
    const hit = this.page.hit(this.mouse.x, this.mouse.y);
    if (!hit) {
      this.hide();
      if (this.page.hovered) this.page.invalidate();
      this.page.hovered = undefined;
    } else if (this.page.hovered && this.told && same(hit, this.told)) {
      this.box.hidden &&= this.isPinned;
      this.follow();
    } else this.timer = window.setTimeout(() => void this.tell(hit), PATIENCE_MS);
  }

  private async tell(hit: Hit): Promise<void> {
    const item = await this.page.answer(this.page.source.item(hit.row, hit.item, this.page.chosen.filter));
    const now = this.page.hit(this.mouse.x, this.mouse.y);
    if (!item || !now || !same(now, hit)) return;
    this.page.hovered = item;
    this.told = hit;
    tooltip(this.box, item);
    if (hit.count > 1) {
      this.box.prepend(
        element(
          "div",
          "look",
          `the longest of ${hit.count.toLocaleString("en-US")} here: zoom in to see them`,
        ),
      );
    }
    this.box.hidden = this.isPinned;
    this.follow();
    this.page.invalidate();
  }

  /** The panel tells the same of the pinned bar. */
  private get isPinned(): boolean {
    const { pinned, hovered } = this.page;
    return !!pinned && !!hovered && same(pinned, hovered);
  }

  /** The box stays beside the mouse, and on the page. */
  private follow(): void {
    const canvas = this.page.canvas.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const x = canvas.left + this.mouse.x;
    const y = canvas.top + this.mouse.y;
    this.box.style.left = `${x + 16 + width > innerWidth ? Math.max(x - width - 12, 4) : x + 16}px`;
    this.box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  }
}

function same(one: { row: number; item: number }, other: { row: number; item: number }): boolean {
  return one.row === other.row && one.item === other.item;
}
