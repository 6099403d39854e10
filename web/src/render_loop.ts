// Draws at most once a frame, and only after a change; requests lines and marks when the view rests.
import { drawPage } from "./draw_page";
import { byId } from "./elements";
import { MOST_MARKED_BARS } from "./generated";
import { barRows } from "./layout";
import { drawMinimap } from "./minimap";
import type { Page } from "./page";
import { beginFrame, hasDeferredImages } from "./tile_cache";
import { tilesOf } from "./tiles";
import { zoomOf } from "./view";

const AT_REST_MS = 140;
const MOST_MARKED_ROWS = 400;

export class RenderLoop {
  private context: CanvasRenderingContext2D;
  private minimap = byId<HTMLCanvasElement>("minimap");
  private scales = new Map<string, number>(); // of line tracks, by communicator or counter
  private restTimer = 0;
  private nsPerPixel = 0; // of the last frame

  /** Calls `before` before every frame, and `atRest` when the view has not moved for a while. */
  constructor(
    private page: Page,
    private before: () => void,
    private atRest: () => void,
  ) {
    this.context = page.canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
  }

  start(): void {
    requestAnimationFrame(() => this.start());
    this.before();
    if (this.page.dirty) this.draw();
  }

  private draw(): void {
    const { page } = this;
    page.dirty = false;
    this.resize();
    beginFrame(page.view.nsPerPixel !== this.nsPerPixel);
    this.nsPerPixel = page.view.nsPerPixel;
    const nextScales = drawPage({
      context: this.context,
      theme: page.theme,
      view: page.view,
      width: page.width,
      height: page.height,
      tiles: page.tiles,
      scene: page.scene,
      lines: page.visibleLines,
      places: page.places,
      scroll: page.scroll,
      selection: page.selection,
      cursor: page.cursor,
      moment: page.moment,
      overlay: {
        marks: page.marks,
        pinned: page.pinned,
        hovered: page.hovered,
        lines: page.showLines,
        hits: page.hits,
      },
      scales: this.scales,
    });
    for (const [name, scale] of nextScales) if (scale !== this.scales.get(name)) page.invalidate();
    this.scales = nextScales;
    if (hasDeferredImages()) page.invalidate();
    page.tiles.sendRequests();
    const [first, last] = page.window;
    drawMinimap(
      this.minimap,
      page.theme,
      page.overview,
      first / page.scene.span_ns,
      last / page.scene.span_ns,
    );
    window.clearTimeout(this.restTimer);
    this.restTimer = window.setTimeout(() => {
      this.atRest();
      void this.requestMarks();
    }, AT_REST_MS);
  }

  private resize(): void {
    const { canvas } = this.page;
    const [width, height] = [
      Math.round(canvas.clientWidth * devicePixelRatio),
      Math.round(canvas.clientHeight * devicePixelRatio),
    ];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
  }

  /** Requests lines and marks of the bars in view, unless there are too many. */
  private async requestMarks(): Promise<void> {
    const { page } = this;
    if (!page.tiles.idle) return; // the next tile draws a frame, which calls this again
    const rows = barRows(page.visibleLines);
    if (!rows.length || rows.length > MOST_MARKED_ROWS || this.barsInView(rows) > MOST_MARKED_BARS) {
      if (page.marks) page.invalidate();
      page.marks = undefined;
      page.marksKey = "";
      return;
    }
    const [first, last] = page.window;
    const key = `${rows.join()}/${first}/${last}`;
    if (key === page.marksKey) return;
    page.marksKey = key;
    const marks = await page.response(page.source.marks(rows, first, last));
    if (!marks || key !== page.marksKey) return;
    page.marks = marks;
    page.invalidate();
  }

  /** The number of bars in view; counting stops above MOST_MARKED_BARS. */
  private barsInView(rows: number[]): number {
    const zoom = zoomOf(this.page.view);
    const [from, to] = tilesOf(...this.page.window, zoom);
    let sum = 0;
    for (const row of rows) {
      for (let place = from; place <= to; place++) {
        for (const count of this.page.tiles.peek(zoom, place, row)?.count ?? []) sum += count;
      }
      if (sum > MOST_MARKED_BARS) break;
    }
    return sum;
  }
}
