// The keys. Those that move the view do so for as long as they are held.
import type { Controls } from "./controls";
import type { Focus } from "./focus";
import type { Page } from "./page";
import { pan } from "./view";

const SCROLL_PIXELS = 60;
const TAP_MS = 30; // how far a short press moves
const LONGEST_FRAME_MS = 50;

export class Keys {
  private held = new Set<string>();
  private movedAt = 0; // ms
  private actions: Record<string, () => void>;

  constructor(
    private page: Page,
    focus: Focus,
    controls: Controls,
  ) {
    this.actions = {
      ArrowLeft: () => void focus.step(-1),
      ArrowRight: () => void focus.step(1),
      ArrowUp: () => page.scrollTo(page.scroll - SCROLL_PIXELS),
      ArrowDown: () => page.scrollTo(page.scroll + SCROLL_PIXELS),
      f: () => focus.fit(),
      "0": () => page.fitAll(),
      j: () => void focus.showHighlights(),
      l: () => controls.toggleLines(),
      m: () => controls.toggleMenu(),
      g: () => controls.toggleFollow(),
      t: () => controls.toggleTheme(),
      "[": () => page.foldAll(true),
      "]": () => page.foldAll(false),
      "/": () => controls.focusSearch(),
      "?": () => controls.toggleHelp(),
      Escape: () => focus.release(),
    };
    document.addEventListener("keydown", (event) => this.press(event));
    document.addEventListener("keyup", (event) => this.held.delete(event.key.toLowerCase()));
    window.addEventListener("blur", () => this.held.clear());
  }

  private press(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "Escape" && document.querySelector("dialog[open]")) return; // the browser closes it
    if ("wasd".includes(key)) {
      if (this.held.has(key)) return; // the keyboard repeats it
      if (!this.held.size) this.movedAt = performance.now();
      this.held.add(key);
      this.move(key, TAP_MS); // at once: a tap may be shorter than a frame
      return;
    }
    const action = this.actions[key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Moves the view by the time since the last frame. */
  moveByHeldKeys(): void {
    if (!this.held.size) return;
    const now = performance.now();
    const passedMs = Math.min(now - this.movedAt, LONGEST_FRAME_MS);
    this.movedAt = now;
    for (const key of this.held) this.move(key, passedMs);
  }

  private move(key: string, ms: number): void {
    if (key === "w") this.page.zoom(0.995 ** ms);
    if (key === "s") this.page.zoom(1.005 ** ms);
    if (key === "a") this.page.setView(pan(this.page.view, -ms));
    if (key === "d") this.page.setView(pan(this.page.view, ms));
  }
}
