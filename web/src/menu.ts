// Levels and filters: what is chosen, and the menu that changes it.
import { OTHER_FUNCTION, type Theme } from "./colours";
import { button, element } from "./elements";
import { BANDWIDTH, COUNTER, type Choice } from "./layout";
import type { Filter, Lane, Scene } from "./types";

export interface Chosen extends Omit<Choice, "flipped"> {
  filter: Filter;
}

/** Kinds of bars and communicators of all lanes. */
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
  const found: number[] = [];
  for (const piece of text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean)) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(piece);
    if (!match) return undefined;
    const last = Number(match[2] ?? match[1]);
    for (let rank = Number(match[1]); rank <= last && found.length < 100_000; rank++) found.push(rank);
  }
  return found.length ? found : undefined;
}

const UNITS: Record<string, number> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 };

/** "32M" -> 33554432 */
export function parseSize(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*([kmg]?)i?b?$/i.exec(text.trim());
  return match ? Math.round(Number(match[1]) * UNITS[match[2].toLowerCase()]) : undefined;
}

const MOST_COMMUNICATORS = 60;
const ORDER = [
  "operation",
  "part",
  BANDWIDTH,
  "Comm",
  "GroupApi",
  "CollApi",
  "P2pApi",
  "KernelLaunch",
  "Group",
  "Coll",
  "P2p",
  "CeColl",
  "CeSync",
  "CeBatch",
  "ProxyCtrl",
  "channel",
  "KernelCh",
  "KernelPhase",
  "ProxyOp",
  "ProxyStep",
  "NetPlugin",
  "Drop",
  "coarse",
  COUNTER,
];
const KIND_TITLES: Record<string, string> = {
  operation: "operations",
  part: "parts",
  channel: "GPU channels",
  Comm: "init/finalize",
  Drop: "dropped",
  counter: "machine",
};

function toggled<T>(set: Set<T>, value: T): Set<T> {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

/** The numbers without or with one of them; nothing where none is left: then all are meant. */
function toggledNumbers(numbers: number[] | undefined, value: number): number[] | undefined {
  const next = toggled(new Set(numbers), value);
  return next.size ? [...next].sort((a, b) => a - b) : undefined;
}

function toggle(text: string, title: string, on: boolean, act: () => void): HTMLButtonElement {
  const made = button(text, title, act);
  made.classList.toggle("on", on);
  return made;
}

function field(value: string, title: string, act: (text: string) => void): HTMLInputElement {
  const made = element("input") as HTMLInputElement;
  made.value = value;
  made.placeholder = title;
  made.setAttribute("aria-label", title);
  made.addEventListener("change", () => act(made.value));
  return made;
}

type Changed = (chosen: Chosen) => void;

function levelButtons(kinds: string[], chosen: Chosen, changed: Changed): Node[] {
  const levels = [...kinds, BANDWIDTH]
    .filter((kind) => ORDER.includes(kind))
    .sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
  return levels.map((kind) => {
    const made = toggle(KIND_TITLES[kind] ?? kind, "show or hide this level", !chosen.hidden.has(kind), () =>
      changed({ ...chosen, hidden: toggled(chosen.hidden, kind) }),
    );
    made.dataset.kind = kind;
    return made;
  });
}

function functionButtons(scene: Scene, theme: Theme, chosen: Chosen, changed: Changed): Node[] {
  const { filter } = chosen;
  const functions = Object.entries(scene.names)
    .map(([code, name]) => [Number(code), name] as const)
    .filter(([code]) => code <= OTHER_FUNCTION);
  return functions.map(([code, name]) => {
    const made = toggle("", "only this operation", filter.functions?.includes(code) ?? false, () =>
      changed({ ...chosen, filter: { ...filter, functions: toggledNumbers(filter.functions, code) } }),
    );
    const swatch = element("i", "swatch");
    swatch.style.background = theme.bars(code);
    made.append(swatch, name);
    made.dataset.function = name;
    return made;
  });
}

function sourceButtons(sources: string[], chosen: Chosen, changed: Changed): Node[] {
  const { filter } = chosen;
  return sources.map((name, code) =>
    toggle(name, "only operations whose time comes from there", filter.sources?.includes(code) ?? false, () =>
      changed({ ...chosen, filter: { ...filter, sources: toggledNumbers(filter.sources, code) } }),
    ),
  );
}

function communicatorButtons(names: string[], chosen: Chosen, changed: Changed): Node[] {
  const buttons: Node[] = names.slice(0, MOST_COMMUNICATORS).map((name) => {
    const made = toggle(
      name.slice(0, 40),
      "only this communicator",
      chosen.communicators?.has(name) ?? false,
      () => {
        const next = toggled(chosen.communicators ?? new Set<string>(), name);
        changed({ ...chosen, communicators: next.size ? next : undefined });
      },
    );
    made.dataset.communicator = name;
    return made;
  });
  const more = names.length - MOST_COMMUNICATORS;
  return more > 0 ? [...buttons, element("span", "", `and ${more} more`)] : buttons;
}

/** Fills the menu of filters; `changed` gets what is chosen then. */
export function fillMenu(
  menu: HTMLElement,
  scene: Scene,
  theme: Theme,
  chosen: Chosen,
  changed: Changed,
): void {
  const { kinds, communicators } = inventory(scene.lanes);
  const { filter } = chosen;
  const { leastBytes, mostBytes } = filter;
  const group = (title: string, ...children: Node[]) =>
    element("div", "group", element("span", "", title), ...children);
  const ranks = field(chosen.ranks ? [...chosen.ranks].join(",") : "", "0-3,8", (text) => {
    const found = parseRanks(text);
    changed({ ...chosen, ranks: found && new Set(found) });
  });
  menu.replaceChildren(
    group("levels", ...levelButtons(kinds, chosen, changed)),
    group("operation", ...functionButtons(scene, theme, chosen, changed)),
    group("communicator", ...communicatorButtons(communicators, chosen, changed)),
    group("rank", ranks),
    group(
      "size",
      field(String(leastBytes ?? ""), "from, e.g. 1M", (text) =>
        changed({ ...chosen, filter: { ...filter, leastBytes: parseSize(text) } }),
      ),
      field(String(mostBytes ?? ""), "to", (text) =>
        changed({ ...chosen, filter: { ...filter, mostBytes: parseSize(text) } }),
      ),
    ),
    group("time by", ...sourceButtons(scene.sources, chosen, changed)),
    button("clear", "no filter, all levels", () => changed({ filter: {}, hidden: new Set() })),
  );
}
