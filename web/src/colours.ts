// Colours of the page, light and dark.
import { COLOURS } from "./generated";

export interface Theme {
  dark: boolean;
  paper: string;
  panel: string;
  stripe: string;
  line: string;
  text: string;
  faint: string;
  accent: string;
  parent: string;
  instance: string;
  warn: string;
  dead: string;
  bars: (code: number) => string;
  onBar: (code: number) => string; // text on a bar
}

const UNKNOWN: [number, number, number] = [220, 10, 60];

function shade(code: number, dark: boolean): [number, number, number] {
  const [hue, saturation, lightness] = COLOURS[code] ?? UNKNOWN;
  return [hue, saturation, dark ? Math.min(lightness, 62) - 4 : lightness];
}

function makeTheme(dark: boolean, colours: Omit<Theme, "dark" | "bars" | "onBar">): Theme {
  const bars: string[] = [];
  const texts: string[] = [];
  for (let code = 0; code < 256; code++) {
    const [hue, saturation, lightness] = shade(code, dark);
    bars.push(`hsl(${hue} ${saturation}% ${lightness}%)`);
    texts.push(lightness > 63 && !dark ? "#1c2430" : "#ffffff");
  }
  return { dark, ...colours, bars: (code) => bars[code], onBar: (code) => texts[code] };
}

export const LIGHT = makeTheme(false, {
  paper: "#ffffff",
  panel: "#f6f7f9",
  stripe: "#fafbfc",
  line: "#e6e9ee",
  text: "#1f2733",
  faint: "#7b8595",
  accent: "#2f6fd0",
  parent: "#3b78e0",
  instance: "#d2453f",
  warn: "#b4571c",
  dead: "rgba(160, 60, 50, 0.10)",
});

export const DARK = makeTheme(true, {
  paper: "#14181f",
  panel: "#1a1f28",
  stripe: "#171c24",
  line: "#2a313d",
  text: "#dfe5ee",
  faint: "#8590a2",
  accent: "#6aa3ff",
  parent: "#6fa6ff",
  instance: "#f0706a",
  warn: "#e0975a",
  dead: "rgba(230, 110, 100, 0.13)",
});
