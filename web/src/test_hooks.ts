// Hooks for the browser tests and for the pictures of the documentation.
import { HEAD, RULER } from "./draw_frame";
import type { Focus } from "./focus";
import type { Line } from "./layout";
import type { Page } from "./page";
import { tilesOf } from "./tiles";
import type { Item, Marks, Place, Scene } from "./types";
import { toX, type View, zoomOf } from "./view";

export class TestHooks {
  constructor(
    private page: Page,
    private focus: Focus,
  ) {}

  /** Whether everything in view is drawn. */
  get ready(): boolean {
    return (this.page.scene as Scene | undefined) !== undefined && this.page.tiles.idle && !this.page.dirty;
  }

  get scene(): Scene {
    return this.page.scene;
  }

  get view(): View {
    return this.page.view;
  }

  get lines(): Line[] {
    return this.page.lines;
  }

  get current(): {
    marks?: Marks;
    pinned?: Item;
    hovered?: Item;
    selection?: [number, number];
    hits: Place[];
    moment?: number;
  } {
    const { marks, pinned, hovered, selection, hits, moment } = this.page;
    return { marks, pinned, hovered, selection, hits, moment };
  }

  /** The colour codes of a row's bars in view. */
  codes(row: number): number[] {
    const zoom = zoomOf(this.page.view);
    const [from, to] = tilesOf(...this.page.window, zoom);
    const codes: number[] = [];
    for (let place = from; place <= to; place++)
      codes.push(...(this.page.tiles.peek(zoom, place, row)?.code ?? []));
    return codes;
  }

  /** The position of a bar in pixels of the page. */
  positionOf(place: Place): { x: number; y: number; width: number; height: number } | undefined {
    const { canvas, places, view, scroll } = this.page;
    const at = places.get(place.row);
    if (!at) return undefined;
    const box = canvas.getBoundingClientRect();
    const x0 = toX(view, place.start_ns);
    return {
      x: box.left + HEAD + x0,
      y: box.top + RULER + at.y - scroll,
      height: at.height,
      width: Math.max(toX(view, place.end_ns) - x0, 1),
    };
  }

  fit(first: number, last: number): void {
    this.page.fit(first, last);
  }

  go(place: Place): Promise<void> {
    return this.focus.go(place);
  }
}
