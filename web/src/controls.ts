// Buttons and switches above the lanes.
import { DARK, LIGHT, type Theme } from "./colours";
import { button, byId } from "./elements";
import type { Focus } from "./focus";
import { showProgress } from "./header";
import { fillHelp } from "./help";
import { type Chosen, fillMenu } from "./menu";
import type { Page } from "./page";
import { rememberTheme, rememberedTheme } from "./theme";

export class Controls {
  private menu = byId("menu");
  private help = byId<HTMLDialogElement>("help");
  private search = byId<HTMLInputElement>("search");

  constructor(
    private page: Page,
    private focus: Focus,
  ) {
    this.setTheme(rememberedTheme());
    fillHelp(this.help);
    byId("tools").append(
      button("filter", "levels and filters (m)", () => this.toggleMenu()),
      button("jump", "where to look (j)", () => void focus.jumps()),
      button(
        "lines",
        "lines to parents and across ranks (l); crowded ones when zoomed in, hovered or pinned",
        () => this.toggleLines(),
      ),
      button("follow", "follow a running job (g)", () => this.toggleFollow()),
      button("◐", "light or dark (t)", () => this.toggleTheme()),
      button("?", "keys (?)", () => this.toggleHelp()),
    );
    this.search.addEventListener("keydown", (event) => {
      const text = this.search.value.trim();
      if (event.key === "Enter" && text) void focus.find(text);
      if (event.key === "Escape") page.canvas.focus();
      event.stopPropagation();
    });
  }

  /** The menu offers what the scene has, and shows what is chosen. */
  refill(): void {
    fillMenu(this.menu, this.page.scene, this.page.theme, this.page.chosen, (chosen) => this.choose(chosen));
  }

  private choose(chosen: Chosen): void {
    this.page.choose(chosen);
    this.refill();
    void this.focus.showSelection();
  }

  toggleMenu(): void {
    this.menu.hidden = !this.menu.hidden;
    this.page.invalidate();
  }

  toggleLines(): void {
    this.page.showLines = !this.page.showLines;
    this.page.invalidate();
  }

  toggleFollow(): void {
    this.page.follow = !this.page.follow;
    if (this.page.follow) this.page.toEnd();
    showProgress("", this.page.follow);
  }

  toggleTheme(): void {
    const theme = this.page.theme.dark ? LIGHT : DARK;
    this.setTheme(theme);
    rememberTheme(theme);
    this.refill();
  }

  private setTheme(theme: Theme): void {
    this.page.theme = theme;
    document.documentElement.classList.toggle("dark", theme.dark);
    this.page.invalidate();
  }

  toggleHelp(): void {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }

  startSearch(): void {
    this.search.focus();
  }
}
