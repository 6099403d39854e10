// What functions that draw lanes have in common.
import type { Theme } from "./colours";
import { type Runs, TILE_WIDTH } from "./generated";
import { snapToPixel } from "./tile_cache";
import type { Tiles } from "./tiles";
import { toX, type View } from "./view";

export interface Drawing {
  context: CanvasRenderingContext2D;
  theme: Theme;
  view: View;
  width: number; // of the time axis, in pixels
  tiles: Tiles;
}

/** Rows that are drawn over each other, the last on top. */
export interface Strip {
  rows: number[];
  kind: string;
  y: number; // on the canvas
  height: number;
}

export interface Tile {
  zoom: number;
  place: number;
  rows: Runs[]; // of a strip, as far as they are in the cache
}

/** Two pixels of the screen between which something is drawn. */
export type Edges = [left: number, right: number];

/** Where a tile begins and ends on the screen. */
export function edgesOf(view: View, { zoom, place }: Tile): Edges {
  const span = TILE_WIDTH * 2 ** zoom;
  return [snapToPixel(toX(view, place * span)), snapToPixel(toX(view, (place + 1) * span))];
}

const keys = new WeakMap<number[], string>();

/** A list of rows as a text; it is made once for each list. */
export function rowsKey(rows: number[]): string {
  const key = keys.get(rows) ?? rows.join();
  keys.set(rows, key);
  return key;
}
