// The whole capture in one strip: how busy it was, and what part of it is shown.
import type { Theme } from "./colours";
import type { Glance } from "./types";

let drawn: { glance: Glance; theme: Theme; width: number; picture: HTMLCanvasElement } | undefined;

/** How busy the capture was over time, waiting apart; drawn once. */
function busyPicture(glance: Glance, theme: Theme, width: number, height: number): HTMLCanvasElement {
  if (drawn && drawn.glance === glance && drawn.theme === theme && drawn.width === width)
    return drawn.picture;
  const picture = document.createElement("canvas");
  picture.width = Math.round(width * devicePixelRatio);
  picture.height = Math.round(height * devicePixelRatio);
  const context = picture.getContext("2d") as CanvasRenderingContext2D;
  context.scale(devicePixelRatio, devicePixelRatio);
  context.fillStyle = theme.accent;
  const step = width / glance.busy.length;
  const room = height - 6;
  glance.busy.forEach((busy, n) => {
    const wait = Math.min(glance.wait[n], busy);
    const wire = Math.min(busy - wait, 1) * room;
    context.globalAlpha = 0.75;
    context.fillRect(n * step, height - 2 - wire, step + 0.3, wire);
    context.globalAlpha = 0.25;
    context.fillRect(n * step, height - 2 - wire - wait * room, step + 0.3, wait * room);
  });
  drawn = { glance, theme, width, picture };
  return picture;
}

/** The whole capture, and what part of it is shown. */
export function paintMinimap(
  canvas: HTMLCanvasElement,
  theme: Theme,
  glance: Glance | undefined,
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
  if (glance) context.drawImage(busyPicture(glance, theme, width, height), 0, 0, width, height);
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
