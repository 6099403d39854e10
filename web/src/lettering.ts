// Texts on the canvas: their font, how wide they are, as much of them as fits.
import { fitted } from "./text";

export const FONT = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
const MOST_MEASURED = 5_000; // texts whose width is kept
const widths = new Map<string, number>(); // by font and text

/** A text's width in the font that is set. */
export function measured(context: CanvasRenderingContext2D, text: string): number {
  const key = `${context.font}/${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > MOST_MEASURED) widths.clear();
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** As much of a name as fits. */
export function shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
  context.font = FONT;
  return fitted(text, room, (piece) => measured(context, piece));
}
