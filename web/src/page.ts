// What the page shows: a scene, a stretch of its time, the chosen lanes, and what is in focus. Whatever
// changes it ends in `invalidate`, and the next frame draws it.
import { LIGHT, type Theme } from "./colours";
import { byId } from "./elements";
import { type Hit, barAt } from "./hit";
import { type Choice, type Line, type RowPlace, layOut, lineAt, rowKeys, rowPlaces } from "./layout";
import type { Chosen } from "./menu";
import { HEAD, RULER } from "./draw_page";
import { Tiles } from "./tiles";
import type { Glance, Item, Marks, Scene, Source } from "./types";
import { type View, fitting, kept, toTime, zoomed } from "./view";

const BELOW_LANES = 40; // pixels left empty, so that the last lane can be scrolled free

export class Page {
  readonly canvas = byId<HTMLCanvasElement>("lanes");
  private scrollBox = byId("scroll");
  readonly tiles: Tiles;
  scene!: Scene;
  names = rowKeys([]);
  lines: Line[] = [];
  places = new Map<number, RowPlace>();
  view: View = { start: 0, nsPerPixel: 1 };
  chosen: Chosen = { filter: {}, hidden: new Set() };
  flipped = new Set<string>(); // lanes folded or unfolded by hand
  theme: Theme = LIGHT;
  showLines = true;
  follow = false;
  pinned?: Item;
  hovered?: Item;
  selection?: [number, number]; // ns, in the order of dragging
  cursor?: number; // x of the mouse on the time axis
  glance?: Glance;
  marks?: Marks;
  marksOf = ""; // the rows and times they were asked for; "": to be asked for again
  dirty = true;
  private lastWidth = 0; // pixels of the time axis

  /** `failed` is told whatever a question to the source ends in but its answer. */
  constructor(
    readonly source: Source,
    readonly failed: (error: unknown) => void,
  ) {
    this.tiles = new Tiles(source, () => this.invalidate(), failed);
    new ResizeObserver(() => this.resized()).observe(this.canvas);
    this.scrollBox.addEventListener("scroll", () => this.moved());
  }

  /** A question's answer, or nothing where it failed. */
  async answer<T>(question: Promise<T>): Promise<T | undefined> {
    try {
      return await question;
    } catch (error) {
      this.failed(error);
      return undefined;
    }
  }

  invalidate(): void {
    this.dirty = true;
  }

  // ---- what is shown ----
  setScene(scene: Scene): void {
    this.scene = scene;
    this.names = rowKeys(scene.lanes);
    this.tiles.clear();
    this.hovered = undefined;
  }

  choose(chosen: Chosen): void {
    if (JSON.stringify(chosen.filter) !== JSON.stringify(this.chosen.filter)) {
      this.tiles.filter = chosen.filter;
      this.tiles.clear();
      this.hovered = undefined;
    }
    this.chosen = chosen;
    this.relayout();
  }

  get choice(): Choice {
    return { ...this.chosen, flipped: this.flipped };
  }

  relayout(): void {
    const { lines, height } = layOut(this.scene, this.choice);
    this.lines = lines;
    this.places = rowPlaces(lines);
    byId("scroll-size").style.height = `${height + BELOW_LANES + RULER}px`;
    this.marks = undefined;
    this.marksOf = "";
    this.invalidate();
  }

  /** Folds a lane, or unfolds it; `relayout` makes it so. */
  flip(key: string): void {
    if (!this.flipped.delete(key)) this.flipped.add(key);
  }

  foldAll(folded: boolean): void {
    for (const line of this.lines) {
      if (line.head && line.foldable && line.folded !== folded && line.lane.level !== "host")
        this.flip(line.lane.key);
    }
    this.relayout();
  }

  // ---- where things are, in pixels ----
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

  /** First and last moment in view. */
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
    this.view = kept(view, this.scene.span_ns, this.width);
    this.moved();
  }

  /** What was in view stays in view, whether a panel has taken room or the window. */
  private resized(): void {
    const before = this.lastWidth;
    this.lastWidth = this.width;
    if (before && before !== this.width)
      this.setView({ ...this.view, nsPerPixel: (this.view.nsPerPixel * before) / this.width });
    this.invalidate();
  }

  private moved(): void {
    this.tiles.forget();
    this.marksOf = "";
    this.invalidate();
  }

  zoom(factor: number, x = this.cursor ?? this.width / 2): void {
    const most = (1.2 * this.scene.span_ns) / this.width;
    this.setView(zoomed(this.view, x, factor, Math.max(most, 1)));
  }

  fit(first: number, last: number): void {
    this.setView(fitting(first, last, this.width, first === last ? 0 : 0.2));
  }

  everything(): void {
    this.setView(fitting(0, this.scene.span_ns, this.width));
  }

  toEnd(): void {
    this.setView({ ...this.view, start: this.scene.span_ns - 0.92 * this.view.nsPerPixel * this.width });
  }
}
