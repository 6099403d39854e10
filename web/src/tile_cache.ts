// Images of tiles: drawn once for a zoom, then moved; while the zoom changes, stretched. They take a
// limited amount of memory.
import type { Theme } from "./colours";

export interface TileImage {
  canvas: HTMLCanvasElement;
  scale: number; // pixels of the image for each pixel of the tile
}

interface CachedImage extends TileImage {
  theme: Theme;
  data: readonly object[]; // what it was drawn from
}

const MOST_BYTES = 96 << 20;
const DRAWING_MS = 8; // of a frame, for images that can wait because something else is shown
const images = new Map<string, CachedImage>(); // the last used is last
let imageBytes = 0;
let drawUntilMs = 0;
let zooming = false;
let deferred = false;

/** Begins a frame. While the view is zoomed, no image stays right long enough to be drawn again. */
export function beginFrame(isZoomed: boolean): void {
  drawUntilMs = performance.now() + DRAWING_MS;
  zooming = isZoomed;
  deferred = false;
}

/** Whether this frame had no time for some images: the next frame must draw them. */
export function hasDeferredImages(): boolean {
  return deferred;
}

/** Whether an image that is not in the cache must wait for the next frame. */
export function mustWait(key: string, data: readonly object[], theme: Theme): boolean {
  return performance.now() > drawUntilMs && !cachedImage(key, data, theme);
}

export function deferImage(): void {
  deferred = true;
}

function cachedImage(key: string, data: readonly object[], theme: Theme): CachedImage | undefined {
  const image = images.get(key);
  if (!image || image.theme !== theme || image.data.length !== data.length) return undefined;
  return image.data.every((object, n) => object === data[n]) ? image : undefined;
}

function bytesOf(canvas: HTMLCanvasElement): number {
  return 4 * canvas.width * canvas.height;
}

function forget(key: string): void {
  const image = images.get(key);
  if (image) imageBytes -= bytesOf(image.canvas);
  images.delete(key);
}

/** The image of some data, from the cache or drawn now. `temporary`: one of any zoom will do. */
export function tileImage(
  key: string,
  data: readonly object[],
  theme: Theme,
  { scale, width, height }: { scale: number; width: number; height: number },
  temporary: boolean,
  draw: (context: CanvasRenderingContext2D) => void,
): TileImage {
  const cached = cachedImage(key, data, theme);
  if (cached) {
    const isRight = cached.scale === scale || temporary;
    if (isRight || zooming || performance.now() > drawUntilMs) {
      deferred ||= !isRight;
      images.delete(key);
      images.set(key, cached);
      return cached;
    }
  }
  forget(key);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * devicePixelRatio);
  canvas.height = Math.ceil(height * devicePixelRatio);
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.scale(devicePixelRatio, devicePixelRatio);
  draw(context);
  const image = { canvas, scale, theme, data };
  images.set(key, image);
  imageBytes += bytesOf(canvas);
  for (const oldest of images.keys()) {
    if (imageBytes <= MOST_BYTES || images.size <= 1) break;
    forget(oldest);
  }
  return image;
}

/** To the next pixel of the screen, so that neighbours leave no seam. */
export function snapToPixel(x: number): number {
  return Math.round(x * devicePixelRatio) / devicePixelRatio;
}
