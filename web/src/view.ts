// The part of time that is shown.

export const NS_PER_PIXEL_LEAST = 0.05;

export interface View {
  start: number; // ns since the scene's first
  nsPerPixel: number;
}

export function toX(view: View, ns: number): number {
  return (ns - view.start) / view.nsPerPixel;
}

export function toTime(view: View, x: number): number {
  return view.start + x * view.nsPerPixel;
}

/** Zooms around x: the time there stays where it is. */
export function zoomAt(view: View, x: number, factor: number, most: number): View {
  const nsPerPixel = Math.min(Math.max(view.nsPerPixel * factor, NS_PER_PIXEL_LEAST), most);
  return { start: toTime(view, x) - x * nsPerPixel, nsPerPixel };
}

export function pan(view: View, pixels: number): View {
  return { ...view, start: view.start + pixels * view.nsPerPixel };
}

/** The view of a span of time with some room at its sides. */
export function fitView(first: number, last: number, width: number, room = 0.03): View {
  const span = Math.max(last - first, width * NS_PER_PIXEL_LEAST);
  const nsPerPixel = (span * (1 + 2 * room)) / Math.max(width, 1);
  return { start: first - span * room, nsPerPixel };
}

/** The view, moved so far that something of the capture stays on the page. */
export function clampView(view: View, span: number, width: number): View {
  const wide = view.nsPerPixel * width;
  const least = -wide * 0.9;
  const most = span - wide * 0.1;
  return { ...view, start: Math.min(Math.max(view.start, least), Math.max(most, least)) };
}

/** The zoom of the tiles for a view: they have 2**zoom ns a pixel, at most as much as the view. */
export function zoomOf(view: View): number {
  return Math.max(0, Math.floor(Math.log2(view.nsPerPixel) + 1e-9));
}
