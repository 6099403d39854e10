// Pictures of tiles: drawn once for a zoom, then moved; while the zoom changes, stretched. As many as memory is set aside for.
import type { Theme } from "./colours";

/** A picture, and how many of its pixels a pixel of the tile has. */
export interface Picture {
  canvas: HTMLCanvasElement;
  scale: number;
}

interface Kept extends Picture {
  theme: Theme;
  shows: readonly object[];
}

const MOST_BYTES = 96 << 20;
const DRAWING_MS = 8; // of a frame, for pictures that can wait: something else stands for them
const kept = new Map<string, Kept>(); // by place and way of drawing; the last used is last
let keptBytes = 0;
let drawUntilMs = 0;
let zooming = false;
let waiting = false;

/** Before a frame. While the view is zoomed, no picture stays right for long enough to be redrawn. */
export function beginPictures(isZoomed: boolean): void {
  drawUntilMs = performance.now() + DRAWING_MS;
  zooming = isZoomed;
  waiting = false;
}

/** Whether the next frame has pictures to draw for which this one had no time. */
export function hasWaiting(): boolean {
  return waiting;
}

/** Whether a picture that is not there yet has to wait for the next frame, if something can stand for it. */
export function mustWait(key: string, shows: readonly object[], theme: Theme): boolean {
  return performance.now() > drawUntilMs && !found(key, shows, theme);
}

export function waitForNext(): void {
  waiting = true;
}

function found(key: string, shows: readonly object[], theme: Theme): Kept | undefined {
  const known = kept.get(key);
  return known &&
    known.theme === theme &&
    known.shows.length === shows.length &&
    known.shows.every((one, n) => one === shows[n])
    ? known
    : undefined;
}

function bytesOf(canvas: HTMLCanvasElement): number {
  return 4 * canvas.width * canvas.height;
}

function forget(key: string): void {
  const old = kept.get(key);
  if (old) keptBytes -= bytesOf(old.canvas);
  kept.delete(key);
}

/** The picture of some data, which `key` finds again for as long as they are the same. `passing`: any zoom will do. */
export function pictureOf(
  key: string,
  shows: readonly object[],
  theme: Theme,
  scale: number,
  width: number,
  height: number,
  passing: boolean,
  draw: (context: CanvasRenderingContext2D) => void,
): Picture {
  const known = found(key, shows, theme);
  if (known) {
    const right = known.scale === scale || passing;
    if (right || zooming || performance.now() > drawUntilMs) {
      waiting ||= !right;
      kept.delete(key);
      kept.set(key, known);
      return known;
    }
  }
  forget(key);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * devicePixelRatio);
  canvas.height = Math.ceil(height * devicePixelRatio);
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.scale(devicePixelRatio, devicePixelRatio);
  draw(context);
  const made = { canvas, scale, theme, shows };
  kept.set(key, made);
  keptBytes += bytesOf(canvas);
  while (keptBytes > MOST_BYTES && kept.size > 1) forget(kept.keys().next().value as string);
  return made;
}

/** To the next pixel of the screen, so that neighbours leave no seam. */
export function snapped(x: number): number {
  return Math.round(x * devicePixelRatio) / devicePixelRatio;
}
