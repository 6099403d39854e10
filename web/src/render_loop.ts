// When to draw: at most once a frame, and only what has changed; lines and marks once the view rests.
import { byId } from "./elements";
import { barRows } from "./layout";
import type { Page } from "./page";
import { paint } from "./draw_page";
import { paintMinimap } from "./minimap";
import { beginPictures, hasWaiting } from "./tile_cache";
import { tilesOf } from "./tiles";
import { zoomOf } from "./view";

const AT_REST_MS = 140;
const MOST_MARKED = 700; // bars in view: with more of them, lines would hide them
const MOST_ROWS_MARKED = 400;

export class Frames {
  private context: CanvasRenderingContext2D;
  private minimap = byId<HTMLCanvasElement>("minimap");
  private scales = new Map<string, number>(); // of lines, by communicator or counter
  private restTimer = 0;
  private nsPerPixel = 0; // of the last frame

  /** `before` is called before every frame, `atRest` when the view has not moved for a while. */
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
    beginPictures(page.view.nsPerPixel !== this.nsPerPixel);
    this.nsPerPixel = page.view.nsPerPixel;
    const nextScales = paint({
      context: this.context,
      theme: page.theme,
      view: page.view,
      width: page.width,
      height: page.height,
      tiles: page.tiles,
      names: page.scene.names,
      scene: page.scene,
      lines: page.visibleLines,
      places: page.places,
      scroll: page.scroll,
      selection: page.selection,
      cursor: page.cursor,
      overlay: { marks: page.marks, pinned: page.pinned, hovered: page.hovered, lines: page.showLines },
      scales: this.scales,
    });
    for (const [name, scale] of nextScales) if (scale !== this.scales.get(name)) page.invalidate();
    this.scales = nextScales;
    if (hasWaiting()) page.invalidate();
    page.tiles.ask();
    const [first, last] = page.window;
    paintMinimap(
      this.minimap,
      page.theme,
      page.glance,
      first / page.scene.span_ns,
      last / page.scene.span_ns,
    );
    window.clearTimeout(this.restTimer);
    this.restTimer = window.setTimeout(() => {
      this.atRest();
      void this.mark();
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

  /** Lines and marks for what is in view, unless that is too much. */
  private async mark(): Promise<void> {
    const { page } = this;
    if (!page.tiles.idle) return; // comes again with the tiles
    const rows = barRows(page.visibleLines);
    if (!rows.length || rows.length > MOST_ROWS_MARKED || this.barsInView(rows) > MOST_MARKED) {
      if (page.marks) page.invalidate();
      page.marks = undefined;
      page.marksOf = "";
      return;
    }
    const [first, last] = page.window;
    const wanted = `${rows.join()}/${first}/${last}`;
    if (wanted === page.marksOf) return;
    page.marksOf = wanted;
    const marks = await page.answer(page.source.marks(rows, first, last));
    if (!marks || wanted !== page.marksOf) return;
    page.marks = marks;
    page.invalidate();
  }

  /** How many bars the tiles in view have, as far as that matters. */
  private barsInView(rows: number[]): number {
    const zoom = zoomOf(this.page.view);
    const [from, to] = tilesOf(...this.page.window, zoom);
    let sum = 0;
    for (const row of rows) {
      for (let place = from; place <= to; place++) {
        for (const count of this.page.tiles.peek(zoom, place, row)?.count ?? []) sum += count;
      }
      if (sum > MOST_MARKED) break;
    }
    return sum;
  }
}
