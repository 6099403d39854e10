// The pinned bar, the selected span, lists of operations: and the panel that shows them.
import { showItem } from "./bar_info";
import { RULER } from "./draw_frame";
import { byId } from "./elements";
import { TILE_WIDTH } from "./generated";
import { lanesToUnfold, operationRows } from "./layout";
import type { Page } from "./page";
import { type PanelActions, showHighlights, showMatches, showSpan } from "./panel";
import type { Item, Place, Target } from "./types";
import { pan, toX } from "./view";

const MOST_ROWS = 2000; // of statistics
const STEP_PIXELS = 120;

export class Focus {
  private panel = byId("panel");
  private actions: PanelActions = {
    close: () => this.release(),
    go: (place) => void this.go(place),
    fit: () => this.fit(),
  };

  constructor(private page: Page) {}

  private open(): void {
    if (this.panel.hidden) this.page.invalidate(); // the lanes become narrower
    this.panel.hidden = false;
  }

  clear(): void {
    this.page.pinned = undefined;
    this.page.selection = undefined;
    this.panel.hidden = true;
    this.page.invalidate();
  }

  release(): void {
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
      this.release();
      return;
    }
    const item = await this.page.response(
      this.page.source.item(hit.row, hit.item, this.page.filters.operations),
    );
    if (item) this.pin(item);
  }

  /** Pins the bar of a row that begins nearest to a time, as an address names it. */
  async pinByKey(key: string, start: number): Promise<void> {
    const row = this.page.names.rows.get(key);
    if (row === undefined) return;
    const place = Math.floor(start / TILE_WIDTH);
    const runs = (await this.page.response(this.page.source.tile(0, place, [row], {})))?.[0];
    if (!runs?.length) return;
    const distance = (n: number) => Math.abs(place * TILE_WIDTH + runs.x0[n] - start);
    let best = 0;
    for (let n = 1; n < runs.length; n++) if (distance(n) < distance(best)) best = n;
    const item = await this.page.response(this.page.source.item(row, runs.item[best], {}));
    if (item) this.pin(item);
  }

  /** Pins a bar and brings it into view; a target without a bar is brought into view. */
  async go(place: Target): Promise<void> {
    if (place.row === undefined || place.item === undefined) {
      this.page.fit(place.start_ns, place.end_ns);
      return;
    }
    const item = await this.page.response(this.page.source.item(place.row, place.item, {}));
    if (!item) return;
    this.reveal(item);
    this.pin(item);
  }

  private reveal(item: Place): void {
    const { page } = this;
    const path = page.names.paths.get(item.row);
    if (path) for (const key of lanesToUnfold(page.scene, page.laneChoice, path)) page.toggleLane(key);
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
      this.page.setView(pan(this.page.view, by * STEP_PIXELS));
      return;
    }
    if (pinned.item + by < 0) return;
    const next = await source.item(pinned.row, pinned.item + by, {}).catch(() => undefined); // it is the last bar
    if (!next) return;
    this.reveal(next);
    this.pin(next);
  }

  /** Shows the selected span or the pinned bar over the whole width. */
  fit(): void {
    const { selection, pinned } = this.page;
    if (selection) this.page.fit(Math.min(...selection), Math.max(...selection));
    else if (pinned) {
      const all = [pinned, ...pinned.instance];
      const first = Math.min(...all.map(({ start_ns }) => start_ns));
      this.page.fit(first, Math.max(...all.map(({ end_ns }) => end_ns)));
    } else this.page.fitAll();
  }

  // ---- a span of time ----
  async showSelection(): Promise<void> {
    const { selection, lines, source, filters } = this.page;
    if (!selection) return;
    const [first, last] = [Math.min(...selection), Math.max(...selection)];
    const rows = operationRows(lines);
    if (!rows.length) return;
    const span = await this.page.response(
      source.span(rows.slice(0, MOST_ROWS), first, last, filters.operations),
    );
    if (!span || this.page.selection !== selection) return;
    this.open();
    showSpan(this.panel, span, first, Math.max(rows.length - MOST_ROWS, 0), this.actions);
  }

  // ---- lists of operations ----
  async search(text: string): Promise<void> {
    const result = await this.page.response(this.page.source.find(text));
    if (!result) return;
    this.clear();
    this.open();
    showMatches(this.panel, text, result, this.actions);
  }

  async showHighlights(): Promise<void> {
    const highlights = await this.page.response(this.page.source.highlights());
    if (!highlights) return;
    this.open();
    showHighlights(this.panel, highlights, this.actions);
  }
}
