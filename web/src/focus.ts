// What is pinned, selected or looked for, and the panel that tells about it.
import { byId } from "./elements";
import { operationRows, unfolding } from "./layout";
import type { Page } from "./page";
import { RULER } from "./draw_page";
import { type PanelActions, showFound, showItem, showJumps, showSpan } from "./panel";
import { WIDTH } from "./tiles";
import type { Item, Place } from "./types";
import { panned, toX } from "./view";

const MOST_ROWS_SUMMED = 2000;
const STEP_PIXELS = 120;

export class Focus {
  private panel = byId("panel");
  private actions: PanelActions = {
    close: () => this.letGo(),
    go: (place) => void this.go(place),
    fit: () => this.fit(),
  };

  constructor(private page: Page) {}

  private open(): void {
    if (this.panel.hidden) this.page.invalidate(); // the lanes have less room
    this.panel.hidden = false;
  }

  clear(): void {
    this.page.pinned = undefined;
    this.page.selection = undefined;
    this.panel.hidden = true;
    this.page.invalidate();
  }

  letGo(): void {
    this.clear();
    this.page.canvas.focus();
  }

  // ---- one bar ----
  pin(item: Item): void {
    this.page.pinned = item;
    this.page.selection = undefined;
    this.open();
    const rankOf = (row: number) =>
      this.page.names.paths.get(row)?.find((lane) => lane.level === "rank")?.title ?? "";
    showItem(this.panel, item, this.page.scene, rankOf, this.actions);
    this.page.invalidate();
  }

  async pinAt(x: number, y: number): Promise<void> {
    const hit = this.page.hit(x, y);
    if (!hit) {
      this.letGo();
      return;
    }
    const item = await this.page.answer(this.page.source.item(hit.row, hit.item, this.page.chosen.filter));
    if (item) this.pin(item);
  }

  /** Pins the bar of a row that begins nearest to a moment: how an address names it. */
  async pinByKey(key: string, start: number): Promise<void> {
    const row = this.page.names.rows.get(key);
    if (row === undefined) return;
    const place = Math.floor(start / WIDTH);
    const runs = (await this.page.answer(this.page.source.tile(0, place, [row], {})))?.[0];
    if (!runs?.length) return;
    const distance = (n: number) => Math.abs(place * WIDTH + runs.x0[n] - start);
    let best = 0;
    for (let n = 1; n < runs.length; n++) if (distance(n) < distance(best)) best = n;
    const item = await this.page.answer(this.page.source.item(row, runs.item[best], {}));
    if (item) this.pin(item);
  }

  /** Pins a bar and brings it into view; of a place without one, the time alone. */
  async go(place: { row?: number; item?: number; start_ns: number; end_ns: number }): Promise<void> {
    if (place.row === undefined || place.item === undefined) {
      this.page.fit(place.start_ns, place.end_ns);
      return;
    }
    const item = await this.page.answer(this.page.source.item(place.row, place.item, {}));
    if (!item) return;
    this.reveal(item);
    this.pin(item);
  }

  private reveal(item: Place): void {
    const { page } = this;
    const path = page.names.paths.get(item.row);
    if (path) for (const key of unfolding(page.scene, page.choice, path)) page.flip(key);
    page.relayout();
    const length = Math.max(item.end_ns - item.start_ns, 1);
    const pixels = length / page.view.nsPerPixel;
    const x = toX(page.view, item.start_ns);
    if (pixels < 12 || pixels > page.width || x < 0 || x + pixels > page.width)
      page.fit(item.start_ns - length, item.end_ns + length);
    const at = page.places.get(item.row);
    if (at && (at.y < page.scroll || at.y + at.height > page.scroll + page.height - RULER))
      page.scrollTo(at.y - page.height / 2);
  }

  /** To the bar before or after the pinned one, else left or right. */
  async step(by: number): Promise<void> {
    const { pinned, source } = this.page;
    if (!pinned) {
      this.page.setView(panned(this.page.view, by * STEP_PIXELS));
      return;
    }
    if (pinned.item + by < 0) return;
    const next = await source.item(pinned.row, pinned.item + by, {}).catch(() => undefined); // it was the last one
    if (!next) return;
    this.reveal(next);
    this.pin(next);
  }

  /** What is in focus, over the whole width. */
  fit(): void {
    const { selection, pinned } = this.page;
    if (selection) this.page.fit(Math.min(...selection), Math.max(...selection));
    else if (pinned) {
      const all = [pinned, ...pinned.instance];
      this.page.fit(Math.min(...all.map((one) => one.start_ns)), Math.max(...all.map((one) => one.end_ns)));
    } else this.page.everything();
  }

  // ---- a stretch of time ----
  async showSelection(): Promise<void> {
    const { selection, lines, source, chosen } = this.page;
    if (!selection) return;
    const [first, last] = [Math.min(...selection), Math.max(...selection)];
    const rows = operationRows(lines);
    if (!rows.length) return;
    const span = await this.page.answer(
      source.span(rows.slice(0, MOST_ROWS_SUMMED), first, last, chosen.filter),
    );
    if (!span || this.page.selection !== selection) return;
    this.open();
    showSpan(this.panel, span, first, Math.max(rows.length - MOST_ROWS_SUMMED, 0), this.actions);
  }

  // ---- lists to jump by ----
  async find(text: string): Promise<void> {
    const found = await this.page.answer(this.page.source.find(text));
    if (!found) return;
    this.clear();
    this.open();
    showFound(this.panel, text, found, this.actions);
  }

  async jumps(): Promise<void> {
    const found = await this.page.answer(this.page.source.jumps());
    if (!found) return;
    this.open();
    showJumps(this.panel, found, this.actions);
  }
}
