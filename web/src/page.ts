// The state of the page: a scene, a span of its time, the choice of lanes, the bar in focus. Every
// change calls `invalidate`, and the next frame draws it.
import { LIGHT, type Theme } from "./colours";
import { HEAD, RULER } from "./draw_frame";
import { byId } from "./elements";
import { barAt, type Hit } from "./hit";
import { type LaneChoice, type Line, layOut, lineAt, type RowPlace, rowNames, rowPlaces } from "./layout";
import type { Filters } from "./menu";
import { Tiles } from "./tiles";
import type { Item, Marks, Overview, Place, Scene, Source } from "./types";
import { clampView, fitView, toTime, type View, zoomAt } from "./view";

const BELOW_LANES = 40; // pixels that stay empty, so that the last lane can be scrolled into view

const JUMP_ZOOM = 10; // a jump to a time shows a tenth of the capture or less

export class Page {
  readonly canvas = byId<HTMLCanvasElement>("lanes");
  private scrollBox = byId("scroll");
  readonly tiles: Tiles;
  scene!: Scene;
  names = rowNames([]);
  lines: Line[] = [];
  places = new Map<number, RowPlace>();
  view: View = { start: 0, nsPerPixel: 1 };
  filters: Filters = { operations: {}, hidden: new Set() };
  toggledLanes = new Set<string>(); // folded or unfolded by hand
  theme: Theme = LIGHT;
  showLines = true;
  follow = false;
  pinned?: Item;
  hovered?: Item;
  selection?: [number, number]; // ns, in the order of dragging
  hits: Place[] = []; // of the last search
  moment?: number; // ns; where the last jump led
  cursor?: number; // x of the mouse on the time axis
  overview?: Overview;
  marks?: Marks;
  marksKey = ""; // the rows and times that they were requested for; "": request them again
  dirty = true;
  private lastWidth = 0; // pixels of the time axis

  /** `onError` gets the errors of requests. */
  constructor(
    readonly source: Source,
    readonly onError: (error: unknown) => void,
  ) {
    this.tiles = new Tiles(source, () => this.invalidate(), onError);
    new ResizeObserver(() => this.keepSpan()).observe(this.canvas);
    this.scrollBox.addEventListener("scroll", () => this.onMove());
  }

  /** The response to a request; undefined where it failed. */
  async response<T>(request: Promise<T>): Promise<T | undefined> {
    try {
      return await request;
    } catch (error) {
      this.onError(error);
      return undefined;
    }
  }

  invalidate(): void {
    this.dirty = true;
  }

  // ---- scene and choices ----
  setScene(scene: Scene): void {
    this.scene = scene;
    this.names = rowNames(scene.lanes);
    this.tiles.clear();
    this.hovered = undefined;
  }

  setFilters(filters: Filters): void {
    if (JSON.stringify(filters.operations) !== JSON.stringify(this.filters.operations)) {
      this.tiles.filter = filters.operations;
      this.tiles.clear();
      this.hovered = undefined;
    }
    this.filters = filters;
    this.relayout();
  }

  get laneChoice(): LaneChoice {
    return { ...this.filters, toggledLanes: this.toggledLanes };
  }

  relayout(): void {
    const { lines, height } = layOut(this.scene, this.laneChoice);
    this.lines = lines;
    this.places = rowPlaces(lines);
    byId("scroll-size").style.height = `${height + BELOW_LANES + RULER}px`;
    this.marks = undefined;
    this.marksKey = "";
    this.invalidate();
  }

  /** Folds a lane, or unfolds it, at the next `relayout`. */
  toggleLane(key: string): void {
    if (!this.toggledLanes.delete(key)) this.toggledLanes.add(key);
  }

  foldAll(folded: boolean): void {
    for (const line of this.lines) {
      const differs = line.head && line.foldable && line.folded !== folded;
      if (differs && line.lane.level !== "host") this.toggleLane(line.lane.key);
    }
    this.relayout();
  }

  // ---- positions in pixels ----
  get width(): number {
    return Math.max(this.canvas.clientWidth - HEAD, 50);
  }

  get height(): number {
    return this.canvas.clientHeight;
  }

  get scroll(): number {
    return this.scrollBox.scrollTop;
  }

  scrollTo(y: number): void {
    this.scrollBox.scrollTop = y;
  }

  /** The first and the last time in view. */
  get window(): [number, number] {
    return [this.view.start, toTime(this.view, this.width)];
  }

  get visibleLines(): Line[] {
    const bottom = this.scroll + this.height - RULER;
    const first = lineAt(this.lines, this.scroll);
    let last = first;
    while (last < this.lines.length && this.lines[last].y < bottom) last++;
    return this.lines.slice(first, last);
  }

  /** The line at a height of the canvas. */
  lineAt(y: number): Line | undefined {
    return y < RULER ? undefined : this.lines[lineAt(this.lines, y - RULER + this.scroll)];
  }

  /** The bar at a point of the canvas. */
  hit(x: number, y: number): Hit | undefined {
    return x < HEAD || y < RULER
      ? undefined
      : barAt(this.lines, this.tiles, this.view, x - HEAD, y - RULER + this.scroll);
  }

  // ---- moving ----
  setView(view: View): void {
    this.view = clampView(view, this.scene.span_ns, this.width);
    this.onMove();
  }

  /** Keeps the span that is in view when a panel or the window changes the width. */
  private keepSpan(): void {
    const before = this.lastWidth;
    this.lastWidth = this.width;
    if (before && before !== this.width) {
      this.setView({ ...this.view, nsPerPixel: (this.view.nsPerPixel * before) / this.width });
    }
    this.invalidate();
  }

  private onMove(): void {
    this.tiles.dropRequests();
    this.marksKey = "";
    this.invalidate();
  }

  zoom(factor: number, x = this.cursor ?? this.width / 2): void {
    const most = (1.2 * this.scene.span_ns) / this.width;
    this.setView(zoomAt(this.view, x, factor, Math.max(most, 1)));
  }

  fit(first: number, last: number): void {
    this.setView(fitView(first, last, this.width, first === last ? 0 : 0.2));
  }

  /** Brings a time into the middle and marks it; zooms in where that could not be seen. */
  jump(ns: number): void {
    const nsPerPixel = Math.min(this.view.nsPerPixel, this.scene.span_ns / JUMP_ZOOM / this.width);
    this.moment = ns;
    this.setView({ start: ns - (nsPerPixel * this.width) / 2, nsPerPixel });
  }

  fitAll(): void {
    this.setView(fitView(0, this.scene.span_ns, this.width));
  }

  moveToEnd(): void {
    this.setView({ ...this.view, start: this.scene.span_ns - 0.92 * this.view.nsPerPixel * this.width });
  }
}
