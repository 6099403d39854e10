// The bar at a point.

import { TILE_WIDTH } from "./generated";
import { isLineTrack, type Line, lineAt } from "./layout";
import { runAt, type Tiles } from "./tiles";
import { toTime, type View, zoomOf } from "./view";

export interface Hit {
  row: number;
  item: number; // place among the bars that the filter shows
  count: number; // bars that are drawn as one
}

const SLACK_PIXELS = 2.5;

/** The narrowest bar at a point of the lanes, in pixels. */
export function barAt(lines: Line[], tiles: Tiles, view: View, x: number, y: number): Hit | undefined {
  const line = lines[lineAt(lines, y)];
  if (!line || line.y > y || isLineTrack(line.kind)) return undefined;
  const strip = Math.min(
    Math.max(Math.floor((y - line.y - 1) / line.stripHeight), 0),
    line.strips.length - 1,
  );
  const zoom = zoomOf(view);
  const time = toTime(view, x);
  const place = Math.floor(time / (TILE_WIDTH * 2 ** zoom));
  const inTile = time / 2 ** zoom - place * TILE_WIDTH;
  const slack = (SLACK_PIXELS * view.nsPerPixel) / 2 ** zoom;
  let best: (Hit & { width: number }) | undefined;
  for (const row of line.strips[strip] ?? []) {
    const runs = tiles.peek(zoom, place, row);
    const run = runs ? runAt(runs, inTile, slack) : -1;
    if (!runs || run < 0) continue;
    const width = runs.x1[run] - runs.x0[run];
    if (!best || width < best.width) best = { row, item: runs.item[run], count: runs.count[run], width };
  }
  return best;
}
