// Draws the whole capture in one strip: how busy it was, and what part of it is shown.
import type { Theme } from "./colours";
import type { Overview } from "./types";

let cached: { overview: Overview; theme: Theme; width: number; image: HTMLCanvasElement } | undefined;

/** The image of how busy the capture was over time, waiting apart; it is drawn once. */
function overviewImage(overview: Overview, theme: Theme, width: number, height: number): HTMLCanvasElement {
  const isCurrent = cached?.overview === overview && cached.theme === theme && cached.width === width;
  if (cached && isCurrent) return cached.image;
  const image = document.createElement("canvas");
  image.width = Math.round(width * devicePixelRatio);
  image.height = Math.round(height * devicePixelRatio);
  const context = image.getContext("2d") as CanvasRenderingContext2D;
  context.scale(devicePixelRatio, devicePixelRatio);
  context.fillStyle = theme.accent;
  const step = width / overview.busy.length;
  const room = height - 6;
  for (const [n, busy] of overview.busy.entries()) {
    const wait = Math.min(overview.wait[n], busy);
    const wire = Math.min(busy - wait, 1) * room;
    context.globalAlpha = 0.75;
    context.fillRect(n * step, height - 2 - wire, step + 0.3, wire);
    context.globalAlpha = 0.25;
    context.fillRect(n * step, height - 2 - wire - wait * room, step + 0.3, wait * room);
  }
  cached = { overview, theme, width, image };
  return image;
}

/** Draws the overview; `first` and `last` are the shares of time between which the page shows it. */
export function drawMinimap(
  canvas: HTMLCanvasElement,
  theme: Theme,
  overview: Overview | undefined,
  first: number,
  last: number,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * devicePixelRatio)) {
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
  }
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.globalAlpha = 1;
  context.fillStyle = theme.panel;
  context.fillRect(0, 0, width, height);
  if (overview) context.drawImage(overviewImage(overview, theme, width, height), 0, 0, width, height);
  const x0 = Math.max(first * width, 0);
  const x1 = Math.min(Math.max(last * width, x0 + 3), width);
  context.fillStyle = theme.paper;
  context.globalAlpha = 0.6;
  context.fillRect(0, 0, x0, height);
  context.fillRect(x1, 0, width - x1, height);
  context.globalAlpha = 1;
  context.strokeStyle = theme.accent;
  context.strokeRect(x0 + 0.5, 0.5, Math.max(x1 - x0 - 1, 2), height - 1);
}
