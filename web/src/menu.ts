// Levels and filters: the user's choice, and the menu that changes it.
import type { Theme } from "./colours";
import { button, element } from "./elements";
import { COLOUR_NAMES, KIND, MENU_KINDS, OTHER_FUNCTION, SOURCES } from "./generated";
import type { LaneChoice } from "./layout";
import type { Lane, OperationFilter, Scene } from "./types";

/** Everything that the menu changes. */
export interface Filters extends Omit<LaneChoice, "toggledLanes"> {
  operations: OperationFilter;
}

/** The kinds of rows and the communicators of all lanes. */
export function inventory(lanes: Lane[]): { kinds: string[]; communicators: string[] } {
  const kinds = new Set<string>();
  const communicators = new Set<string>();
  const visit = (lane: Lane) => {
    if (lane.level === "communicator") communicators.add(lane.title);
    for (const track of lane.tracks) kinds.add(track.kind);
    lane.children.forEach(visit);
  };
  lanes.forEach(visit);
  return { kinds: [...kinds], communicators: [...communicators] };
}

/** "0-3,8" -> 0, 1, 2, 3, 8 */
export function parseRanks(text: string): number[] | undefined {
  const ranks: number[] = [];
  const pieces = text.split(",").map((piece) => piece.trim());
  for (const piece of pieces.filter(Boolean)) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(piece);
    if (!match) return undefined;
    const last = Number(match[2] ?? match[1]);
    for (let rank = Number(match[1]); rank <= last && ranks.length < MOST_RANKS; rank++) ranks.push(rank);
  }
  return ranks.length ? ranks : undefined;
}

const MOST_RANKS = 100_000;
const UNITS: Record<string, number> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 };

/** "32M" -> 33554432 */
export function parseSize(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*([kmg]?)i?b?$/i.exec(text.trim());
  return match ? Math.round(Number(match[1]) * UNITS[match[2].toLowerCase()]) : undefined;
}

const MOST_COMMUNICATORS = 60;
const LONGEST_NAME = 40; // letters

/** The set without a value that was in it, or with one that was not. */
function toggle<T>(set: Set<T>, value: T): Set<T> {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

/** The same of numbers; undefined where none is left: no condition. */
function toggleNumber(numbers: number[] | undefined, value: number): number[] | undefined {
  const next = toggle(new Set(numbers), value);
  return next.size ? [...next].sort((a, b) => a - b) : undefined;
}

function toggleButton(text: string, title: string, on: boolean, act: () => void): HTMLButtonElement {
  const made = button(text, title, act);
  made.classList.toggle("on", on);
  return made;
}

function input(value: string, title: string, act: (text: string) => void): HTMLInputElement {
  const made = element("input") as HTMLInputElement;
  made.value = value;
  made.placeholder = title;
  made.setAttribute("aria-label", title);
  made.addEventListener("change", () => act(made.value));
  return made;
}

function group(title: string, ...children: Node[]): HTMLElement {
  return element("div", "group", element("span", "", title), ...children);
}

/** Makes the parts of the menu; `onChange` gets the filters after a click. */
class Menu {
  constructor(
    private filters: Filters,
    private onChange: (filters: Filters) => void,
  ) {}

  private change(changed: Partial<Filters>): void {
    this.onChange({ ...this.filters, ...changed });
  }

  private changeOperations(changed: OperationFilter): void {
    this.change({ operations: { ...this.filters.operations, ...changed } });
  }

  levels(kinds: string[]): Node[] {
    const { hidden } = this.filters;
    const present = Object.entries(MENU_KINDS).filter(([kind]) => [...kinds, KIND.bandwidth].includes(kind));
    return present.map(([kind, text]) => {
      const made = toggleButton(text, "show or hide this level", !hidden.has(kind), () =>
        this.change({ hidden: toggle(hidden, kind) }),
      );
      made.dataset.kind = kind;
      return made;
    });
  }

  functions(theme: Theme): Node[] {
    const { functions } = this.filters.operations;
    const codes = Object.keys(COLOUR_NAMES).map(Number);
    return codes
      .filter((code) => code <= OTHER_FUNCTION)
      .map((code) => {
        const made = toggleButton("", "only this operation", functions?.includes(code) ?? false, () =>
          this.changeOperations({ functions: toggleNumber(functions, code) }),
        );
        const swatch = element("i", "swatch");
        swatch.style.background = theme.bars(code);
        made.append(swatch, COLOUR_NAMES[code]);
        made.dataset.function = COLOUR_NAMES[code];
        return made;
      });
  }

  sources(): Node[] {
    const { sources } = this.filters.operations;
    const title = "only operations with times from this source";
    return SOURCES.map((name, code) =>
      toggleButton(name, title, sources?.includes(code) ?? false, () =>
        this.changeOperations({ sources: toggleNumber(sources, code) }),
      ),
    );
  }

  communicators(names: string[]): Node[] {
    const { communicators } = this.filters;
    const buttons: Node[] = names.slice(0, MOST_COMMUNICATORS).map((name) => {
      const [text, on] = [name.slice(0, LONGEST_NAME), communicators?.has(name) ?? false];
      const made = toggleButton(text, "only this communicator", on, () => {
        const next = toggle(communicators ?? new Set<string>(), name);
        this.change({ communicators: next.size ? next : undefined });
      });
      made.dataset.communicator = name;
      return made;
    });
    const more = names.length - MOST_COMMUNICATORS;
    return more > 0 ? [...buttons, element("span", "", `and ${more} more`)] : buttons;
  }

  ranks(): Node {
    const { ranks } = this.filters;
    return input(ranks ? [...ranks].join(",") : "", "0-3,8", (text) => {
      const parsed = parseRanks(text);
      this.change({ ranks: parsed && new Set(parsed) });
    });
  }

  sizes(): Node[] {
    const { leastBytes, mostBytes } = this.filters.operations;
    return [
      input(String(leastBytes ?? ""), "from, e.g. 1M", (text) =>
        this.changeOperations({ leastBytes: parseSize(text) }),
      ),
      input(String(mostBytes ?? ""), "to", (text) => this.changeOperations({ mostBytes: parseSize(text) })),
    ];
  }
}

/** Fills the menu of filters; `onChange` gets the filters after a click. */
export function fillMenu(
  box: HTMLElement,
  scene: Scene,
  theme: Theme,
  filters: Filters,
  onChange: (filters: Filters) => void,
): void {
  const { kinds, communicators } = inventory(scene.lanes);
  const menu = new Menu(filters, onChange);
  box.replaceChildren(
    group("levels", ...menu.levels(kinds)),
    group("operation", ...menu.functions(theme)),
    group("communicator", ...menu.communicators(communicators)),
    group("rank", menu.ranks()),
    group("size", ...menu.sizes()),
    group("time by", ...menu.sources()),
    button("clear", "no filter, all levels", () => onChange({ operations: {}, hidden: new Set() })),
  );
}
