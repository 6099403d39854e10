// Light or dark: the user's last choice, else the preference of the system.
import { DARK, LIGHT, type Theme } from "./colours";

const NAME = "ncclscope-theme";

export function storedTheme(): Theme {
  let name: string | null = null;
  try {
    name = localStorage.getItem(NAME);
  } catch {
    // a page from a file may have no storage
  }
  return (name ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark"
    ? DARK
    : LIGHT;
}

export function storeTheme(theme: Theme): void {
  try {
    localStorage.setItem(NAME, theme.dark ? "dark" : "light");
  } catch {
    // it is not stored
  }
}
