// The buttons and the search field above the lanes.
import { DARK, LIGHT, type Theme } from "./colours";
import { button, byId } from "./elements";
import type { Focus } from "./focus";
import { showProgress } from "./header";
import { fillHelp } from "./help";
import { type Filters, fillMenu } from "./menu";
import type { Page } from "./page";
import { storedTheme, storeTheme } from "./theme";

export class Controls {
  private menu = byId("menu");
  private help = byId<HTMLDialogElement>("help");
  private search = byId<HTMLInputElement>("search");

  constructor(
    private page: Page,
    private focus: Focus,
  ) {
    this.setTheme(storedTheme());
    fillHelp(this.help);
    byId("tools").append(
      button("filter", "levels and filters (m)", () => this.toggleMenu()),
      button("jump", "where to look (j)", () => void focus.showHighlights()),
      button(
        "lines",
        "lines to parents and across ranks (l); crowded ones when zoomAt in, hovered or pinned",
        () => this.toggleLines(),
      ),
      button("follow", "follow a running job (g)", () => this.toggleFollow()),
      button("◐", "light or dark (t)", () => this.toggleTheme()),
      button("?", "keys (?)", () => this.toggleHelp()),
    );
    this.search.addEventListener("keydown", (event) => {
      const text = this.search.value.trim();
      if (event.key === "Enter" && text) void focus.search(text);
      if (event.key === "Escape") page.canvas.focus();
      event.stopPropagation();
    });
  }

  /** Fills the menu with what the scene has. */
  fillMenu(): void {
    fillMenu(this.menu, this.page.scene, this.page.theme, this.page.filters, (filters) =>
      this.setFilters(filters),
    );
  }

  private setFilters(filters: Filters): void {
    this.page.setFilters(filters);
    this.fillMenu();
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
    if (this.page.follow) this.page.moveToEnd();
    showProgress("", this.page.follow);
  }

  toggleTheme(): void {
    const theme = this.page.theme.dark ? LIGHT : DARK;
    this.setTheme(theme);
    storeTheme(theme);
    this.fillMenu();
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

  focusSearch(): void {
    this.search.focus();
  }
}
