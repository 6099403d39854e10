// The pinned bar, the selected span, lists of operations: and the panel that shows them.
import { showItem } from "./bar_info";
import { RULER } from "./draw_frame";
import { byId } from "./elements";
import { TILE_WIDTH } from "./generated";
import { lanesToUnfold, operationRows } from "./layout";
import type { Page } from "./page";
import { type PanelActions, showHighlights, showMatches, showSpan } from "./panel";
import { parseMoment } from "./search";
import type { Item, Target } from "./types";
import { pan, toX } from "./view";

const MOST_ROWS = 2000; // of statistics
const STEP_PIXELS = 120;
const LEAST_PIXELS = 30; // of an instance that is brought into view

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
    this.page.hits = [];
    this.page.moment = undefined;
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

  /** Brings a bar into view with the bars of its instance: they show who was late. */
  private reveal(item: Item): void {
    const { page } = this;
    const path = page.names.paths.get(item.row);
    if (path) for (const key of lanesToUnfold(page.scene, page.laneChoice, path)) page.toggleLane(key);
    page.relayout();
    const all = [item, ...item.instance];
    const first = Math.min(...all.map(({ start_ns }) => start_ns));
    const last = Math.max(...all.map(({ end_ns }) => end_ns));
    const pixels = Math.max(last - first, 1) / page.view.nsPerPixel;
    const isInView = toX(page.view, first) >= 0 && toX(page.view, last) <= page.width;
    if (pixels < LEAST_PIXELS || !isInView) {
      const room = Math.max(last - first, 1) / 4;
      page.fit(first - room, last + room);
    }
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
  /** Jumps to a time, or lists and marks the operations that match; to the only one it goes. */
  async search(text: string): Promise<void> {
    const ns = parseMoment(text);
    if (ns !== undefined) {
      this.clear();
      this.page.jump(Math.min(ns, this.page.scene.span_ns));
      this.page.canvas.focus();
      return;
    }
    const result = await this.page.response(this.page.source.find(text));
    if (!result) return;
    this.clear();
    this.open();
    this.page.hits = result.matches;
    showMatches(this.panel, text, result, this.actions);
    if (result.count === 1 && result.matches.length) await this.go(result.matches[0]);
  }

  async showHighlights(): Promise<void> {
    const highlights = await this.page.response(this.page.source.highlights());
    if (!highlights) return;
    this.open();
    showHighlights(this.panel, highlights, this.actions);
  }
}
