// Loads scenes as the capture grows, and keeps the state of the page in its address.
import { type Address, decodeAddress, encodeAddress } from "./address";
import type { Focus } from "./focus";
import { showHeader, showProgress, showTrouble } from "./header";
import type { Page } from "./page";
import { SceneChanged } from "./source";

const NO_SERVER = "The server does not answer any more: is `ncclscope timeline` still running?";
const OVERVIEW_PIXELS = { least: 200, most: 1200 };

export class SceneLoader {
  private checking = false;

  /** Calls `onChange` when there is another scene or choice. */
  constructor(
    private page: Page,
    private focus: Focus,
    private onChange: () => void,
  ) {}

  async start(): Promise<void> {
    await this.load(decodeAddress(location.hash));
    window.addEventListener("hashchange", () => this.apply(decodeAddress(location.hash)));
  }

  private async load(address?: Address): Promise<void> {
    const { page } = this;
    const before = page.scene as typeof page.scene | undefined;
    const pin = this.pin();
    page.setScene(await page.source.scene());
    showHeader(page.scene);
    if (address) this.apply(address);
    else {
      const shift = before ? Number(BigInt(before.first_ns) - BigInt(page.scene.first_ns)) : 0;
      page.view = { ...page.view, start: page.view.start + shift };
      page.relayout();
      this.onChange();
      if (pin) void this.focus.pinByKey(pin.key, pin.start);
    }
    if (page.follow) page.moveToEnd();
    page.overview = await page.source.overview(
      Math.min(OVERVIEW_PIXELS.most, Math.max(OVERVIEW_PIXELS.least, Math.round(innerWidth))),
    );
    page.invalidate();
  }

  /** Loads the server's scene if it has another one. */
  async check(): Promise<void> {
    if (this.checking) return;
    this.checking = true;
    try {
      const state = await this.page.source.state();
      showProgress(state.progress, this.page.follow);
      showTrouble(state.trouble);
      if (state.generation !== this.page.scene.generation) await this.load();
    } catch (error) {
      this.onError(error);
    } finally {
      this.checking = false;
    }
  }

  onError(error: unknown): void {
    if (error instanceof SceneChanged) void this.check();
    else if (error instanceof TypeError) showTrouble(NO_SERVER);
    else showTrouble(String((error as Error).message));
  }

  // ---- address ----
  private apply(address: Address): void {
    const { page } = this;
    this.focus.clear();
    page.toggledLanes = new Set(address.toggledLanes);
    page.showLines = address.lines;
    page.setFilters({
      operations: address.filter,
      hidden: new Set(address.hidden),
      ranks: address.ranks && new Set(address.ranks),
      communicators: address.communicators && new Set(address.communicators),
    });
    this.onChange();
    if (address.first !== undefined && address.span !== undefined)
      page.setView({ start: address.first, nsPerPixel: address.span / page.width });
    else page.fitAll();
    page.scrollTo(address.scroll ?? 0);
    page.selection = address.selection;
    void this.focus.showSelection();
    if (address.pin) void this.focus.pinByKey(address.pin.key, address.pin.start);
  }

  /** Puts the state of the page into its address. */
  writeAddress(): void {
    const { view, width, scroll, toggledLanes, filters, selection, showLines } = this.page;
    const address: Address = {
      first: view.start,
      span: view.nsPerPixel * width,
      scroll,
      toggledLanes: [...toggledLanes],
      hidden: [...filters.hidden],
      filter: filters.operations,
      ranks: filters.ranks && [...filters.ranks],
      communicators: filters.communicators && [...filters.communicators],
      pin: this.pin(),
      selection,
      lines: showLines,
    };
    const text = `#${encodeAddress(address)}`;
    if (text !== location.hash) history.replaceState(null, "", text);
  }

  private pin(): Address["pin"] {
    const { pinned, names } = this.page;
    const key = pinned && names.keys.get(pinned.row);
    return pinned && key ? { key, start: pinned.start_ns } : undefined;
  }
}
