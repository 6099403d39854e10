// Draws strips of bars from tiles. A tile with many bars is drawn once and then moved as an image.
import { drawNames } from "./bar_names";
import { drawRuns } from "./draw_bars";
import { type Drawing, type Edges, edgesOf, rowsKey, type Strip, type Tile } from "./drawing";
import { type Runs, TILE_WIDTH } from "./generated";
import { deferImage, mustWait, type TileImage, tileImage } from "./tile_cache";
import { tilesOf } from "./tiles";
import { toTime, zoomOf } from "./view";

const COARSER_ZOOMS = 6; // that are searched for something to show while a tile is missing
const IMAGE_FROM_RUNS = 6; // fewer runs are drawn as quickly as an image of them

/** Draws the rows of a strip over each other. */
export function drawStrip(drawing: Drawing, strip: Strip): void {
  const { view, width, tiles } = drawing;
  const zoom = zoomOf(view);
  const [from, to] = tilesOf(view.start, toTime(view, width), zoom);
  for (let place = from; place <= to; place++) {
    const runs = strip.rows.map((row) => tiles.get(zoom, place, row));
    const tile = { zoom, place, rows: runs.filter(hasRuns) };
    const edges = edgesOf(view, tile);
    const missing = strip.rows.filter((_, n) => runs[n] === undefined);
    if (missing.length) drawCoarserTile(drawing, { ...strip, rows: missing }, tile, edges);
    drawTile(drawing, strip, tile, edges, missing.length > 0);
  }
  // Names may reach into the next tile, so they are drawn after all tiles.
  for (let place = from; place <= to; place++) {
    const rows = strip.rows.map((row) => tiles.peek(zoom, place, row)).filter(hasRuns);
    drawNames(drawing, strip, { zoom, place, rows }, place === from);
  }
}

function hasRuns(runs: Runs | undefined): runs is Runs {
  return runs !== undefined && runs.length > 0;
}

/** Draws a tile's bars between two edges. `temporary`: a better tile replaces it soon. */
function drawTile(drawing: Drawing, strip: Strip, tile: Tile, edges: Edges, temporary: boolean): void {
  const { view, theme, context } = drawing;
  const { zoom, place, rows } = tile;
  const magnified = 2 ** zoom > view.nsPerPixel;
  const scale = magnified ? 1 : 2 ** zoom / view.nsPerPixel;
  const count = rows.reduce((sum, runs) => sum + runs.length, 0);
  if (count < IMAGE_FROM_RUNS || (magnified && !temporary)) {
    if (!count) return;
    context.save();
    context.beginPath();
    context.rect(edges[0], strip.y - 1, edges[1] - edges[0], strip.height + 2);
    context.clip();
    for (const runs of rows) drawRuns(drawing, runs, tile, strip, edges);
    context.restore();
    return;
  }
  const key = `${zoom}/${place}/${strip.kind}/${strip.height}/${devicePixelRatio}/${rowsKey(strip.rows)}`;
  if (!temporary && mustWait(key, rows, theme) && drawCoarserTile(drawing, strip, tile, edges)) {
    deferImage();
    return;
  }
  const width = TILE_WIDTH * scale;
  const size = { scale, width: width + 1, height: strip.height };
  const image = tileImage(key, rows, theme, size, temporary, (inside) => {
    const inTile = { start: place * TILE_WIDTH * 2 ** zoom, nsPerPixel: 2 ** zoom / scale };
    const own = { ...drawing, context: inside, width, view: inTile };
    for (const runs of rows) drawRuns(own, runs, tile, { ...strip, y: 0 }, [0, width + 1]);
  });
  drawTileImage(drawing, image, tile, strip.y, edges);
}

/** Draws the image of a tile between two edges, stretched to the present zoom. */
export function drawTileImage(
  { context, view }: Drawing,
  { canvas, scale }: TileImage,
  tile: Tile,
  y: number,
  edges: Edges,
): void {
  const [left, right] = edgesOf(view, tile);
  const [x0, x1] = [Math.max(left, edges[0]), Math.min(right, edges[1])];
  if (x1 <= x0) return;
  const stretch = (scale * view.nsPerPixel * devicePixelRatio) / 2 ** tile.zoom;
  const [from, width] = [(x0 - left) * stretch, (x1 - x0) * stretch];
  context.globalAlpha = 1;
  context.drawImage(
    canvas,
    ...([from, 0, width, canvas.height] as const),
    ...([x0, y, x1 - x0, canvas.height / devicePixelRatio] as const),
  );
}

/** Draws a coarser tile in the place of one that is missing; false where there is none. */
function drawCoarserTile(drawing: Drawing, strip: Strip, { zoom, place }: Tile, edges: Edges): boolean {
  for (let up = 1; up <= COARSER_ZOOMS; up++) {
    const above = Math.floor(place / 2 ** up);
    const rows = strip.rows
      .map((row) => drawing.tiles.peek(zoom + up, above, row))
      .filter((runs) => runs !== undefined);
    if (!rows.length) continue;
    drawTile(drawing, strip, { zoom: zoom + up, place: above, rows }, edges, true);
    return true;
  }
  return false;
}
