// Light or dark: what was chosen last, else what the system prefers.
import { DARK, LIGHT, type Theme } from "./colours";

const NAME = "ncclscope-theme";

export function rememberedTheme(): Theme {
  let name: string | null = null;
  try {
    name = localStorage.getItem(NAME);
  } catch {
    // a file opened from disk may have no storage
  }
  return (name ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark"
    ? DARK
    : LIGHT;
}

export function rememberTheme(theme: Theme): void {
  try {
    localStorage.setItem(NAME, theme.dark ? "dark" : "light");
  } catch {
    // likewise
  }
}
