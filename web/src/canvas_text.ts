// Texts on the canvas: fonts, widths, and how much of a text fits.
import { fitText } from "./text";

export const FONT = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
export const BOLD = `600 ${FONT}`;
export const ITALIC = `italic ${FONT}`;
const MOST_WIDTHS = 5_000; // in the cache
const LONGEST = 200; // letters that are measured: names may have any length
const widths = new Map<string, number>(); // by font and text

/** The width of a text. */
export function textWidth(context: CanvasRenderingContext2D, text: string, font = FONT): number {
  const key = `${font}/${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > MOST_WIDTHS) widths.clear();
    context.font = font;
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** As much of a text as fits into some pixels. */
export function fitCanvasText(
  context: CanvasRenderingContext2D,
  text: string,
  room: number,
  font = FONT,
): string {
  return fitText(text.slice(0, LONGEST), room, (piece) => textWidth(context, piece, font));
}
