// Scenes as the capture grows, and the address that brings a view back.
import { type Address, decodeAddress, encodeAddress } from "./address";
import type { Focus } from "./focus";
import { showHeader, showProgress, showTrouble } from "./header";
import type { Page } from "./page";
import { Changed } from "./source";

const GLANCE_PIXELS = { least: 200, most: 1200 };

export class Scenes {
  private looking = false;

  /** `shown` is called when there is another scene or choice. */
  constructor(
    private page: Page,
    private focus: Focus,
    private shown: () => void,
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
      this.shown();
      if (pin) void this.focus.pinByKey(pin.key, pin.start);
    }
    if (page.follow) page.toEnd();
    page.glance = await page.source.glance(
      Math.min(GLANCE_PIXELS.most, Math.max(GLANCE_PIXELS.least, Math.round(innerWidth))),
    );
    page.invalidate();
  }

  /** Whether there is another scene by now. */
  async look(): Promise<void> {
    if (this.looking) return;
    this.looking = true;
    try {
      const state = await this.page.source.state();
      showProgress(state.progress, this.page.follow);
      showTrouble(state.trouble);
      if (state.generation !== this.page.scene.generation) await this.load();
    } catch (error) {
      this.failed(error);
    } finally {
      this.looking = false;
    }
  }

  failed(error: unknown): void {
    if (error instanceof Changed) void this.look();
    else if (error instanceof TypeError)
      showTrouble("The server does not answer any more: is `ncclscope timeline` still running?");
    else showTrouble(String((error as Error).message));
  }

  // ---- address ----
  private apply(address: Address): void {
    const { page } = this;
    this.focus.clear();
    page.flipped = new Set(address.flipped);
    page.showLines = address.lines;
    page.choose({
      filter: address.filter,
      hidden: new Set(address.hidden),
      ranks: address.ranks && new Set(address.ranks),
      communicators: address.communicators && new Set(address.communicators),
    });
    this.shown();
    if (address.first !== undefined && address.span !== undefined)
      page.setView({ start: address.first, nsPerPixel: address.span / page.width });
    else page.everything();
    page.scrollTo(address.scroll ?? 0);
    page.selection = address.selection;
    void this.focus.showSelection();
    if (address.pin) void this.focus.pinByKey(address.pin.key, address.pin.start);
  }

  /** What is shown now goes into the address. */
  remember(): void {
    const { view, width, scroll, flipped, chosen, selection, showLines } = this.page;
    const address: Address = {
      first: view.start,
      span: view.nsPerPixel * width,
      scroll,
      flipped: [...flipped],
      hidden: [...chosen.hidden],
      filter: chosen.filter,
      ranks: chosen.ranks && [...chosen.ranks],
      communicators: chosen.communicators && [...chosen.communicators],
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
