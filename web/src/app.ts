// The page: state, mouse, keys, and when to draw.
import { DARK, LIGHT, type Theme } from "./colours";
import { type Chosen, fillHelp, fillMenu } from "./controls";
import { BANDWIDTH, type Choice, type Line, layOut, lineAt, rowKeys, rowPlaces, unfolding } from "./layout";
import { HEAD, RULER, type Picture, paint, paintMinimap } from "./paint";
import { type PanelActions, button, showFound, showItem, showJumps, showSpan, tooltip } from "./panel";
import { openSource } from "./open";
import { Changed } from "./source";
import { Tiles, WIDTH, runAt, tilesOf } from "./tiles";
import type { Item, Marks, Place, Scene, Source } from "./types";
import { type Address, type View, decodeAddress, encodeAddress, fitting, kept, panned, toTime, toX, zoomOf, zoomed } from "./view";

const LOOK_EVERY_MS = 1000;
const SETTLED_MS = 140;
const MARKS_FROM = 700; // bars at most

function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

interface Hit {
  row: number;
  item: number;
  count: number;
}

class App {
  private canvas = byId<HTMLCanvasElement>("lanes");
  private minimap = byId<HTMLCanvasElement>("minimap");
  private panel = byId<HTMLElement>("panel");
  private tip = byId<HTMLElement>("tooltip");
  private scrollBox = byId<HTMLElement>("scroll");
  private menu = byId<HTMLElement>("menu");
  private search = byId<HTMLInputElement>("search");
  private context = this.canvas.getContext("2d", { alpha: false }) as CanvasRenderingContext2D;
  private tiles: Tiles;
  scene!: Scene;
  private names = { keys: new Map<number, string>(), rows: new Map<string, number>(), paths: new Map() };
  lines: Line[] = [];
  private places = new Map<number, { y: number; height: number }>();
  view: View = { start: 0, nsPerPixel: 1 };
  private chosen: Chosen = { filter: {}, hidden: new Set() };
  private flipped = new Set<string>();
  private showLines = true;
  private theme: Theme = LIGHT;
  private marks?: Marks;
  private pinned?: Item;
  private hovered?: Item;
  private selection?: [number, number];
  private cursor?: number;
  private mouse = { x: -1, y: -1 };
  private follow = false;
  private glance?: { busy: number[]; wait: number[] };
  private dirty = true;
  private settle = 0;
  private hoverTimer = 0;
  private keys = new Set<string>();
  private hold = 0;
  private scales = new Map<string, number>();
  frames = 0;

  constructor(private source: Source) {
    this.tiles = new Tiles(source, () => this.invalidate(), (error) => this.failed(error));
  }

  async start(): Promise<void> {
    const dark = localStorageGet("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.setTheme(dark === "dark");
    this.listen();
    await this.load(decodeAddress(location.hash));
    window.setInterval(() => void this.look(), LOOK_EVERY_MS);
    requestAnimationFrame(() => this.frame());
  }

  // ---- scenes ----
  private async load(address?: Address): Promise<void> {
    const before = this.scene;
    const pin = this.pinned && { key: this.names.keys.get(this.pinned.row) ?? "", start: this.pinned.start_ns };
    this.scene = await this.source.scene();
    this.names = rowKeys(this.scene.lanes);
    this.tiles.clear();
    this.marks = undefined;
    this.hovered = undefined;
    if (address) this.apply(address);
    else if (!before || before.first_ns !== this.scene.first_ns) {
      const shift = before ? Number(BigInt(before.first_ns) - BigInt(this.scene.first_ns)) : 0;
      this.view = { ...this.view, start: this.view.start + shift };
    }
    this.showHeader();
    this.relayout();
    if (!address && pin) void this.pinByKey(pin.key, pin.start, false);
    if (this.follow) this.toEnd();
    this.glance = await this.source.glance(Math.min(1200, Math.max(200, Math.round(innerWidth))));
    this.invalidate();
  }

  private apply(address: Address): void {
    const { first, span } = address;
    this.flipped = new Set(address.flipped);
    this.chosen = {
      filter: address.filter, hidden: new Set(address.hidden), ranks: address.ranks && new Set(address.ranks),
      communicators: address.communicators && new Set(address.communicators),
    };
    this.tiles.filter = this.chosen.filter;
    this.showLines = address.lines;
    this.resize();
    this.view = first !== undefined && span !== undefined ? { start: first, nsPerPixel: span / this.width } : fitting(0, this.scene.span_ns, this.width);
    this.relayout();
    this.scrollTo(address.scroll ?? 0);
    this.selection = address.selection;
    if (this.selection) void this.showSelection();
    if (address.pin) void this.pinByKey(address.pin.key, address.pin.start, false);
  }

  private async look(): Promise<void> {
    try {
      const state = await this.source.state();
      byId("progress").textContent = state.progress ? `${state.progress} …` : this.follow ? "following" : "";
      this.trouble(state.trouble);
      if (state.generation !== this.scene.generation) await this.load();
    } catch (error) {
      this.failed(error);
    }
  }

  private failed(error: unknown): void {
    if (error instanceof Changed) void this.look();
    else this.trouble(error instanceof TypeError ? "The server does not answer any more: is `ncclscope timeline` still running?" : String((error as Error).message));
  }

  private trouble(text: string): void {
    const box = byId("trouble");
    box.textContent = text;
    box.hidden = !text;
  }

  private showHeader(): void {
    const { capture, complete, notes } = this.scene;
    byId("capture").textContent = capture.split("/").filter(Boolean).pop() ?? capture;
    byId("capture").title = capture;
    document.title = `${capture.split("/").filter(Boolean).pop()} – ncclscope timeline`;
    const note = notes.find((one) => /simulation|totals only/.test(one));
    const box = byId("complete");
    box.textContent = [this.scene.thinned, note, complete].filter(Boolean).join(" · ");
    box.title = [this.scene.thinned, complete, ...notes, "Traffic outside NCCL is not seen."].filter(Boolean).join("\n");
    box.classList.toggle("incomplete", /(missing|lost|[1-9]\d* events? dropped|killed)/.test(complete) || !!this.scene.thinned);
    fillMenu(this.menu, this.scene, this.theme, this.chosen, (chosen) => this.choose(chosen));
  }

  private choose(chosen: Chosen): void {
    if (JSON.stringify(chosen.filter) !== JSON.stringify(this.chosen.filter)) {
      this.tiles.filter = chosen.filter;
      this.tiles.clear();
      this.hovered = undefined;
    }
    this.chosen = chosen;
    fillMenu(this.menu, this.scene, this.theme, this.chosen, (next) => this.choose(next));
    this.relayout();
    if (this.selection) void this.showSelection();
  }

  private get choice(): Choice {
    return { flipped: this.flipped, hidden: this.chosen.hidden, ranks: this.chosen.ranks, communicators: this.chosen.communicators };
  }

  private relayout(): void {
    const { lines, height } = layOut(this.scene, this.choice);
    this.lines = lines;
    this.places = rowPlaces(lines);
    byId("scroll-size").style.height = `${height + 40 + RULER}px`;
    this.marks = undefined;
    this.invalidate();
  }

  // ---- drawing ----
  get width(): number {
    return Math.max(this.canvas.clientWidth - HEAD, 50);
  }

  private get height(): number {
    return this.canvas.clientHeight;
  }

  get scroll(): number {
    return this.scrollBox.scrollTop;
  }

  private scrollTo(y: number): void {
    this.scrollBox.scrollTop = y;
  }

  private resize(): void {
    const [width, height] = [Math.round(this.canvas.clientWidth * devicePixelRatio), Math.round(this.height * devicePixelRatio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
  }

  invalidate(): void {
    this.dirty = true;
  }

  private frame(): void {
    requestAnimationFrame(() => this.frame());
    this.glide();
    if (!this.dirty) return;
    this.dirty = false;
    this.frames++;
    this.resize();
    const picture: Picture = {
      context: this.context, theme: this.theme, view: this.view, width: this.width, height: this.height, tiles: this.tiles, names: this.scene.names,
      scene: this.scene, lines: this.lines, places: this.places, scroll: this.scroll, selection: this.selection, cursor: this.cursor,
      overlay: { marks: this.marks, pinned: this.pinned, hovered: this.hovered, lines: this.showLines }, scales: this.scales, nextScales: new Map(),
    };
    paint(picture);
    for (const [name, scale] of picture.nextScales) if (scale !== this.scales.get(name)) this.invalidate();
    this.scales = picture.nextScales;
    this.tiles.ask();
    const span = this.scene.span_ns;
    paintMinimap(this.minimap, this.theme, this.glance, this.view.start / span, toTime(this.view, this.width) / span);
    window.clearTimeout(this.settle);
    this.settle = window.setTimeout(() => void this.settled(), SETTLED_MS);
  }

  /** The view has come to rest: lines, marks, and the address. */
  private async settled(): Promise<void> {
    this.remember();
    if (!this.tiles.idle) return;
    const rows = this.visibleRows();
    const [first, last] = [this.view.start, toTime(this.view, this.width)];
    const shown = this.shownBars(rows);
    if (!rows.length || rows.length > 400 || shown > MARKS_FROM) {
      if (this.marks) {
        this.marks = undefined;
        this.invalidate();
      }
      return;
    }
    const key = `${rows.join()}/${first}/${last}`;
    if (key === this.marksKey) return;
    this.marksKey = key;
    try {
      const marks = await this.source.marks(rows, first, last);
      if (key !== this.marksKey) return;
      this.marks = marks;
      this.invalidate();
    } catch (error) {
      this.failed(error);
    }
  }
  private marksKey = "";

  visibleRows(): number[] {
    const rows: number[] = [];
    const bottom = this.scroll + this.height - RULER;
    for (let n = lineAt(this.lines, this.scroll); n < this.lines.length && this.lines[n].y < bottom; n++) {
      if (this.lines[n].kind !== BANDWIDTH && this.lines[n].kind !== "mixed") rows.push(...this.lines[n].strips.flat());
    }
    return [...new Set(rows)].sort((a, b) => a - b);
  }

  /** How many bars tiles say there are in view. */
  private shownBars(rows: number[]): number {
    const zoom = zoomOf(this.view);
    const [from, to] = tilesOf(this.view.start, toTime(this.view, this.width), zoom);
    let sum = 0;
    for (const row of rows) {
      for (let place = from; place <= to; place++) {
        const runs = this.tiles.peek(zoom, place, row);
        if (runs) for (const count of runs.count) sum += count;
      }
      if (sum > 4 * MARKS_FROM) break;
    }
    return sum;
  }

  // ---- address ----
  private remember(): void {
    const key = this.pinned && this.names.keys.get(this.pinned.row);
    const address: Address = {
      first: this.view.start, span: this.view.nsPerPixel * this.width, scroll: this.scroll, flipped: [...this.flipped], hidden: [...this.chosen.hidden],
      filter: this.chosen.filter, ranks: this.chosen.ranks && [...this.chosen.ranks], communicators: this.chosen.communicators && [...this.chosen.communicators],
      pin: this.pinned && key ? { key, start: this.pinned.start_ns } : undefined, selection: this.selection, lines: this.showLines,
    };
    const text = `#${encodeAddress(address)}`;
    if (text !== location.hash) history.replaceState(null, "", text);
  }

  // ---- moving ----
  setView(view: View): void {
    this.view = kept(view, this.scene.span_ns, this.width);
    this.tiles.forget();
    this.marksKey = "";
    this.invalidate();
  }

  private zoom(factor: number, x = this.cursor ?? this.width / 2): void {
    const most = (1.2 * this.scene.span_ns) / this.width;
    this.setView(zoomed(this.view, x, factor, Math.max(most, 1)));
  }

  fit(first: number, last: number): void {
    this.setView(fitting(first, last, this.width, first === last ? 0 : 0.2));
  }

  everything(): void {
    this.setView(fitting(0, this.scene.span_ns, this.width));
  }

  private toEnd(): void {
    const span = this.view.nsPerPixel * this.width;
    this.setView({ ...this.view, start: this.scene.span_ns - 0.92 * span });
  }

  /** w a s d while they are held. */
  private glide(): void {
    if (!this.keys.size) return;
    const now = performance.now();
    const passed = Math.min(now - this.hold, 50);
    this.hold = now;
    if (this.keys.has("w")) this.zoom(0.995 ** passed);
    if (this.keys.has("s")) this.zoom(1.005 ** passed);
    if (this.keys.has("a")) this.setView(panned(this.view, -passed));
    if (this.keys.has("d")) this.setView(panned(this.view, passed));
  }

  // ---- bars under the mouse ----
  hit(x: number, y: number): Hit | undefined {
    if (x < HEAD || y < RULER) return undefined;
    const at = y - RULER + this.scroll;
    const line = this.lines[lineAt(this.lines, at)];
    if (!line || line.y > at || line.kind === BANDWIDTH) return undefined;
    const strip = Math.min(Math.max(Math.floor((at - line.y - 1) / line.stripHeight), 0), line.strips.length - 1);
    const zoom = zoomOf(this.view);
    const time = toTime(this.view, x - HEAD);
    const place = Math.floor(time / (WIDTH * 2 ** zoom));
    const inTile = time / 2 ** zoom - place * WIDTH;
    const slack = (2.5 * this.view.nsPerPixel) / 2 ** zoom;
    let best: (Hit & { width: number }) | undefined;
    for (const row of line.strips[strip] ?? []) {
      const runs = this.tiles.peek(zoom, place, row);
      const run = runs ? runAt(runs, inTile, slack) : -1;
      if (!runs || run < 0) continue;
      const width = runs.x1[run] - runs.x0[run];
      if (!best || width < best.width) best = { row, item: runs.item[run], count: runs.count[run], width };
    }
    return best;
  }

  private hover(): void {
    window.clearTimeout(this.hoverTimer);
    const hit = this.hit(this.mouse.x, this.mouse.y);
    if (!hit) {
      this.tip.hidden = true;
      if (this.hovered) {
        this.hovered = undefined;
        this.invalidate();
      }
      return;
    }
    if (this.hovered && this.hovered.row === hit.row && this.shownItem === hit.item) {
      this.moveTip();
      return;
    }
    this.hoverTimer = window.setTimeout(() => void this.showTip(hit), 40);
  }
  private shownItem = -1;

  private async showTip(hit: Hit): Promise<void> {
    try {
      const item = await this.source.item(hit.row, hit.item, this.chosen.filter);
      const now = this.hit(this.mouse.x, this.mouse.y);
      if (!now || now.row !== hit.row || now.item !== hit.item) return;
      this.hovered = item;
      this.shownItem = hit.item;
      tooltip(this.tip, item);
      if (hit.count > 1) {
        const more = document.createElement("div");
        more.className = "look";
        more.textContent = `the longest of ${hit.count.toLocaleString("en-US")} here: zoom in to see them`;
        this.tip.prepend(more);
      }
      this.tip.hidden = false;
      this.moveTip();
      this.invalidate();
    } catch (error) {
      this.failed(error);
    }
  }

  private moveTip(): void {
    const box = this.canvas.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const x = box.left + this.mouse.x;
    const y = box.top + this.mouse.y;
    this.tip.style.left = `${x + 16 + width > innerWidth ? Math.max(x - width - 12, 4) : x + 16}px`;
    this.tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 6))}px`;
  }

  // ---- pinning ----
  private actions: PanelActions = {
    close: () => this.letGo(),
    go: (place) => void this.go(place),
    fit: () => this.fitFocus(),
  };

  pin(item: Item): void {
    this.pinned = item;
    this.selection = undefined;
    this.openPanel();
    showItem(this.panel, item, this.scene, this.actions);
    this.nameRanks();
    this.invalidate();
  }

  /** Arrivals are listed by the names of their lanes. */
  private nameRanks(): void {
    for (const line of this.panel.querySelectorAll<HTMLElement>(".arrivals button")) {
      const path = this.names.paths.get(Number(line.dataset.row)) as { level: string; title: string }[] | undefined;
      line.dataset.name = path?.find((lane) => lane.level === "rank")?.title ?? "";
    }
  }

  private openPanel(): void {
    if (!this.panel.hidden) return;
    this.panel.hidden = false;
    this.invalidate();
  }

  private letGo(): void {
    this.pinned = undefined;
    this.selection = undefined;
    this.panel.hidden = true;
    this.canvas.focus();
    this.invalidate();
  }

  private async pinByKey(key: string, start: number, move: boolean): Promise<void> {
    const row = this.names.rows.get(key);
    if (row === undefined) return;
    const place = Math.floor(start / WIDTH);
    try {
      const [runs] = await this.source.tile(0, place, [row], {});
      const distance = (n: number) => Math.abs(place * WIDTH + runs.x0[n] - start);
      let best = 0;
      for (let n = 1; n < runs.length; n++) if (distance(n) < distance(best)) best = n;
      if (runs.length) await this.go({ row, item: runs.item[best], start_ns: start, end_ns: start }, move);
    } catch (error) {
      this.failed(error);
    }
  }

  /** Pins a bar and, if asked to, brings it into view. */
  async go(place: { row?: number; item?: number; start_ns: number; end_ns: number }, move = true): Promise<void> {
    if (place.row === undefined || place.item === undefined) {
      this.fit(place.start_ns, place.end_ns);
      return;
    }
    try {
      const item = await this.source.item(place.row, place.item, {});
      if (move) this.reveal(item);
      this.pin(item);
    } catch (error) {
      this.failed(error);
    }
  }

  private reveal(item: Place): void {
    const path = this.names.paths.get(item.row);
    if (path) for (const key of unfolding(this.scene, this.choice, path)) this.flip(key);
    this.relayout();
    const length = Math.max(item.end_ns - item.start_ns, 1);
    const pixels = length / this.view.nsPerPixel;
    const x = toX(this.view, item.start_ns);
    if (pixels < 12 || pixels > this.width || x < 0 || x + pixels > this.width) this.fit(item.start_ns - length, item.end_ns + length);
    const at = this.places.get(item.row);
    if (at && (at.y < this.scroll || at.y + at.height > this.scroll + this.height - RULER)) this.scrollTo(at.y - this.height / 2);
  }

  private flip(key: string): void {
    if (!this.flipped.delete(key)) this.flipped.add(key);
  }

  private async step(by: number): Promise<void> {
    if (!this.pinned) {
      this.setView(panned(this.view, by * 120));
      return;
    }
    const item = this.pinned.item + by;
    if (item < 0) return;
    try {
      const next = await this.source.item(this.pinned.row, item, {});
      this.reveal(next);
      this.pin(next);
    } catch {
      // it was the last one
    }
  }

  private fitFocus(): void {
    if (this.selection) this.fit(Math.min(...this.selection), Math.max(...this.selection));
    else if (this.pinned) {
      const all = [this.pinned, ...this.pinned.instance];
      this.fit(Math.min(...all.map((one) => one.start_ns)), Math.max(...all.map((one) => one.end_ns)));
    } else this.everything();
  }

  private async showSelection(): Promise<void> {
    if (!this.selection) return;
    const [first, last] = [Math.min(...this.selection), Math.max(...this.selection)];
    const rows: number[] = [];
    const visit = (lines: Line[]) => {
      for (const line of lines) if (line.kind === "operation" || (line.folded && line.lane.level !== "thread")) rows.push(...line.strips.flat());
    };
    visit(this.lines);
    const wanted = [...new Set(rows)].sort((a, b) => a - b).slice(0, 2000);
    if (!wanted.length) return;
    try {
      const span = await this.source.span(wanted, first, last, this.chosen.filter);
      this.openPanel();
      showSpan(this.panel, span, first, this.actions);
    } catch (error) {
      this.failed(error);
    }
  }

  // ---- listening ----
  private listen(): void {
    new ResizeObserver(() => this.invalidate()).observe(this.canvas);
    this.scrollBox.addEventListener("scroll", () => {
      this.tiles.forget();
      this.marksKey = "";
      this.invalidate();
    });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("mousemove", (event) => {
      this.mouse = { x: event.offsetX, y: event.offsetY };
      this.cursor = event.offsetX >= HEAD ? event.offsetX - HEAD : undefined;
      this.canvas.style.cursor = event.offsetX < HEAD ? "pointer" : event.offsetY < RULER ? "col-resize" : "default";
      this.invalidate();
      if (!event.buttons) this.hover();
    });
    this.canvas.addEventListener("mouseleave", () => {
      this.mouse = { x: -1, y: -1 };
      this.cursor = undefined;
      this.tip.hidden = true;
      this.hovered = undefined;
      this.invalidate();
    });
    this.canvas.addEventListener("mousedown", (event) => this.press(event));
    this.canvas.addEventListener("dblclick", (event) => {
      const hit = this.hit(event.offsetX, event.offsetY);
      if (hit && this.pinned) this.fitFocus();
    });
    this.minimap.addEventListener("mousedown", (event) => this.dragMinimap(event));
    document.addEventListener("keydown", (event) => this.keyDown(event));
    document.addEventListener("keyup", (event) => this.keys.delete(event.key.toLowerCase()));
    window.addEventListener("blur", () => this.keys.clear());
    window.addEventListener("hashchange", () => this.apply(decodeAddress(location.hash)));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") void this.find();
      if (event.key === "Escape") this.canvas.focus();
      event.stopPropagation();
    });
    const tools = byId("tools");
    tools.append(
      button("filter", "levels and filters (m)", () => this.toggleMenu()), button("jump", "where to look (j)", () => void this.jumps()),
      button("lines", "lines to parents and across ranks (l)", () => this.toggleLines()), button("follow", "follow a running job (g)", () => this.toggleFollow()),
      button("◐", "light or dark (t)", () => this.setTheme(!this.theme.dark)), button("?", "keys (?)", () => this.help()),
    );
    fillHelp(byId<HTMLDialogElement>("help"));
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) this.zoom(1.0025 ** (event.deltaY * lines), Math.max(event.offsetX - HEAD, 0));
    else if (event.shiftKey) this.setView(panned(this.view, (event.deltaY || event.deltaX) * lines));
    else {
      if (event.deltaX) this.setView(panned(this.view, event.deltaX * lines));
      this.scrollTo(this.scroll + event.deltaY * lines);
    }
  }

  private press(event: MouseEvent): void {
    if (event.button !== 0) return;
    this.canvas.focus();
    const { offsetX: x0, offsetY: y0 } = event;
    if (x0 < HEAD) {
      this.pressHead(y0);
      return;
    }
    const selecting = y0 < RULER || event.shiftKey;
    const begin = { view: this.view, scroll: this.scroll, time: toTime(this.view, x0 - HEAD), x: event.clientX, y: event.clientY };
    let moved = false;
    this.tip.hidden = true;
    const drag = (now: MouseEvent) => {
      const [dx, dy] = [now.clientX - begin.x, now.clientY - begin.y];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true;
      if (selecting) this.selection = [begin.time, toTime(this.view, x0 - HEAD + dx)];
      else {
        this.setView(panned(begin.view, -dx));
        this.scrollTo(begin.scroll - dy);
      }
      this.invalidate();
    };
    const done = () => {
      document.removeEventListener("mousemove", drag);
      document.removeEventListener("mouseup", done);
      if (moved && selecting) {
        this.pinned = undefined;
        void this.showSelection();
      } else if (!moved) void this.click(x0, y0);
    };
    document.addEventListener("mousemove", drag);
    document.addEventListener("mouseup", done);
  }

  private pressHead(y: number): void {
    const line = this.lines[lineAt(this.lines, y - RULER + this.scroll)];
    if (y < RULER || !line || !line.foldable) return;
    this.flip(line.lane.key);
    this.relayout();
  }

  private async click(x: number, y: number): Promise<void> {
    const hit = this.hit(x, y);
    if (!hit) {
      this.letGo();
      return;
    }
    try {
      this.pin(await this.source.item(hit.row, hit.item, this.chosen.filter));
    } catch (error) {
      this.failed(error);
    }
  }

  private dragMinimap(event: MouseEvent): void {
    const move = (now: MouseEvent) => {
      const share = (now.clientX - this.minimap.getBoundingClientRect().left) / this.minimap.clientWidth;
      this.setView({ ...this.view, start: share * this.scene.span_ns - (this.view.nsPerPixel * this.width) / 2 });
    };
    const done = () => {
      document.removeEventListener("mousemove", move);
      document.removeEventListener("mouseup", done);
    };
    document.addEventListener("mousemove", move);
    document.addEventListener("mouseup", done);
    move(event);
  }

  private keyDown(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if ("wasd".includes(key)) {
      if (!this.keys.size) {
        this.hold = performance.now() - 30; // a tap moves, too
        this.invalidate();
      }
      this.keys.add(key);
      return;
    }
    const acts: Record<string, () => void> = {
      ArrowLeft: () => void this.step(-1),
      ArrowRight: () => void this.step(1),
      ArrowUp: () => this.scrollTo(this.scroll - 60),
      ArrowDown: () => this.scrollTo(this.scroll + 60),
      f: () => this.fitFocus(),
      "0": () => this.everything(),
      j: () => void this.jumps(),
      l: () => this.toggleLines(),
      m: () => this.toggleMenu(),
      g: () => this.toggleFollow(),
      t: () => this.setTheme(!this.theme.dark),
      "[": () => this.foldAll(true),
      "]": () => this.foldAll(false),
      "/": () => this.search.focus(),
      "?": () => this.help(),
      Escape: () => this.letGo(),
    };
    const act = acts[key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  private toggleMenu(): void {
    this.menu.hidden = !this.menu.hidden;
    this.invalidate();
  }

  private toggleLines(): void {
    this.showLines = !this.showLines;
    this.invalidate();
  }

  private toggleFollow(): void {
    this.follow = !this.follow;
    if (this.follow) this.toEnd();
    byId("progress").textContent = this.follow ? "following" : "";
  }

  private foldAll(folded: boolean): void {
    for (const line of [...this.lines]) {
      if (line.head && line.foldable && line.folded !== folded && line.lane.level !== "host") this.flip(line.lane.key);
    }
    this.relayout();
  }

  setTheme(dark: boolean): void {
    this.theme = dark ? DARK : LIGHT;
    document.documentElement.classList.toggle("dark", dark);
    localStorageSet("theme", dark ? "dark" : "light");
    if (this.scene) this.showHeader();
    this.invalidate();
  }

  private help(): void {
    const dialog = byId<HTMLDialogElement>("help");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  private async find(): Promise<void> {
    const text = this.search.value.trim();
    if (!text) return;
    try {
      const found = await this.source.find(text);
      this.pinned = undefined;
      this.selection = undefined;
      this.openPanel();
      showFound(this.panel, text, found, this.actions);
    } catch (error) {
      this.failed(error);
    }
  }

  private async jumps(): Promise<void> {
    try {
      const found = await this.source.jumps();
      this.openPanel();
      showJumps(this.panel, found, this.actions);
    } catch (error) {
      this.failed(error);
    }
  }

  /** For tests: whether everything that can be seen has been drawn. */
  get ready(): boolean {
    return this.scene !== undefined && this.tiles.idle && !this.dirty;
  }

  /** For tests: where a bar is on the page. */
  whereIs(place: Place): { x: number; y: number; width: number; height: number } | undefined {
    const at = this.places.get(place.row);
    if (!at) return undefined;
    const box = this.canvas.getBoundingClientRect();
    const x0 = toX(this.view, place.start_ns);
    return {
      x: box.left + HEAD + x0, y: box.top + RULER + at.y - this.scroll, height: at.height,
      width: Math.max(toX(this.view, place.end_ns) - x0, 1),
    };
  }

  get shown(): { marks?: Marks; pinned?: Item; hovered?: Item; selection?: [number, number]; names: Map<string, number> } {
    return { marks: this.marks, pinned: this.pinned, hovered: this.hovered, selection: this.selection, names: this.names.rows };
  }
}

function localStorageGet(name: string): string | null {
  try {
    return localStorage.getItem(`ncclscope-${name}`);
  } catch {
    return null; // a file opened from disk may have none
  }
}

function localStorageSet(name: string, value: string): void {
  try {
    localStorage.setItem(`ncclscope-${name}`, value);
  } catch {
    // likewise
  }
}

void openSource().then((source) => {
  const app = new App(source);
  Object.assign(window, { timeline: app });
  return app.start();
});
