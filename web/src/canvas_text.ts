// Texts on the canvas: their fonts, how wide they are, as much of them as fits.
import { fitted } from "./text";

export const FONT = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
export const BOLD = `600 ${FONT}`;
export const ITALIC = `italic ${FONT}`;
const MOST_MEASURED = 5_000; // texts whose width is kept
const widths = new Map<string, number>(); // by font and text

/** A text's width. */
export function measured(context: CanvasRenderingContext2D, text: string, font = FONT): number {
  const key = `${font}/${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > MOST_MEASURED) widths.clear();
    context.font = font;
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** As much of a text as fits. */
export function shortened(
  context: CanvasRenderingContext2D,
  text: string,
  room: number,
  font = FONT,
): string {
  return fitted(text.slice(0, LONGEST), room, (piece) => measured(context, piece, font));
}
const LONGEST = 200; // letters: names may be of any length
