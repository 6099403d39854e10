// Buttons, filters and keys around the lanes.
import type { Theme } from "./colours";
import { BANDWIDTH } from "./layout";
import { button, element } from "./panel";
import type { Filter, Lane, Scene } from "./types";

export interface Chosen {
  filter: Filter;
  hidden: Set<string>;
  ranks?: Set<number>;
  communicators?: Set<string>;
}

/** Different values over all lanes. */
export function inventory(lanes: Lane[]): { kinds: string[]; ranks: number[]; communicators: string[] } {
  const kinds = new Set<string>();
  const ranks = new Set<number>();
  const communicators = new Set<string>();
  const visit = (lane: Lane) => {
    if (lane.level === "rank" && lane.ids.rank !== undefined) ranks.add(lane.ids.rank);
    if (lane.level === "communicator") communicators.add(lane.title);
    for (const track of lane.tracks) kinds.add(track.kind);
    lane.children.forEach(visit);
  };
  lanes.forEach(visit);
  return { kinds: [...kinds], ranks: [...ranks].sort((a, b) => a - b), communicators: [...communicators] };
}

/** "0-3,8" -> 0, 1, 2, 3, 8 */
export function parseRanks(text: string): number[] | undefined {
  const found: number[] = [];
  for (const piece of text.split(",").map((one) => one.trim()).filter(Boolean)) {
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

const ORDER = [
  "operation", "part", BANDWIDTH, "Comm", "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p", "CeColl", "CeSync",
  "CeBatch", "ProxyCtrl", "channel", "KernelCh", "KernelPhase", "ProxyOp", "ProxyStep", "NetPlugin", "Drop", "coarse",
];
const KIND_TITLES: Record<string, string> = { operation: "operations", part: "parts", channel: "GPU channels", Comm: "init/finalize", Drop: "dropped" };

function toggled<T>(set: Set<T>, value: T): Set<T> {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

/** Fills the menu of filters; `changed` gets what is chosen then. */
export function fillMenu(menu: HTMLElement, scene: Scene, theme: Theme, chosen: Chosen, changed: (chosen: Chosen) => void): void {
  const all = inventory(scene.lanes);
  const group = (title: string, ...children: Node[]) => element("div", "group", element("span", "", title), ...children);
  const levels = [...all.kinds, BANDWIDTH].filter((kind) => ORDER.includes(kind)).sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
  const levelButtons = levels.map((kind) => {
    const made = button(KIND_TITLES[kind] ?? kind, "show or hide this level", () => changed({ ...chosen, hidden: toggled(chosen.hidden, kind) }));
    made.classList.toggle("on", !chosen.hidden.has(kind));
    made.dataset.kind = kind;
    return made;
  });
  const functions = Object.entries(scene.names).filter(([code]) => Number(code) < 12);
  const functionButtons = functions.map(([code, name]) => {
    const number = Number(code);
    const now = new Set(chosen.filter.functions ?? []);
    const made = button("", "only this operation", () => {
      const next = toggled(now, number);
      changed({ ...chosen, filter: { ...chosen.filter, functions: next.size ? [...next].sort((a, b) => a - b) : undefined } });
    });
    const swatch = element("i", "swatch");
    swatch.style.background = theme.bars(number);
    made.append(swatch, name);
    made.classList.toggle("on", now.has(number));
    made.dataset.function = name;
    return made;
  });
  const sourceButtons = scene.sources.map((name, code) => {
    const now = new Set(chosen.filter.sources ?? []);
    const made = button(name, "only operations whose time comes from there", () => {
      const next = toggled(now, code);
      changed({ ...chosen, filter: { ...chosen.filter, sources: next.size ? [...next].sort((a, b) => a - b) : undefined } });
    });
    made.classList.toggle("on", now.has(code));
    return made;
  });
  const field = (value: string, title: string, act: (text: string) => void) => {
    const made = element("input") as HTMLInputElement;
    made.value = value;
    made.placeholder = title;
    made.setAttribute("aria-label", title);
    made.addEventListener("change", () => act(made.value));
    return made;
  };
  const { least, most } = chosen.filter;
  const sizes = [
    field(least === undefined ? "" : String(least), "from, e.g. 1M", (text) => changed({ ...chosen, filter: { ...chosen.filter, least: parseSize(text) } })),
    field(most === undefined ? "" : String(most), "to", (text) => changed({ ...chosen, filter: { ...chosen.filter, most: parseSize(text) } })),
  ];
  const ranks = field(chosen.ranks ? [...chosen.ranks].join(",") : "", "0-3,8", (text) => {
    const found = parseRanks(text);
    changed({ ...chosen, ranks: found ? new Set(found) : undefined });
  });
  const comms = all.communicators.slice(0, 60).map((name) => {
    const made = button(name.slice(0, 40), "only this communicator", () => {
      const next = toggled(chosen.communicators ?? new Set<string>(), name);
      changed({ ...chosen, communicators: next.size ? next : undefined });
    });
    made.classList.toggle("on", chosen.communicators?.has(name) ?? false);
    made.dataset.communicator = name;
    return made;
  });
  const nothing = button("clear", "no filter, all levels", () => changed({ filter: {}, hidden: new Set() }));
  menu.replaceChildren(
    group("levels", ...levelButtons), group("operation", ...functionButtons), group("communicator", ...comms), group("rank", ranks),
    group("size", ...sizes), group("time by", ...sourceButtons), nothing,
  );
}

const KEYS: [string, string][] = [
  ["w  s", "zoom in and out at the mouse"],
  ["a  d", "left and right"],
  ["← →", "the bar before and after the pinned one, else left and right"],
  ["↑ ↓", "up and down the lanes"],
  ["f", "the pinned bar, or the selected span, over the whole width"],
  ["0", "everything"],
  ["click", "pin a bar; its instance and its parent are joined by lines"],
  ["drag", "move; on the ruler, or with Shift: select a span"],
  ["wheel", "up and down; with Ctrl: zoom; with Shift: left and right"],
  ["j", "where to look: findings, slowest, largest skew"],
  ["l", "lines on and off: dotted blue to the parent, red across ranks"],
  ["m", "levels and filters"],
  ["[  ]", "fold and unfold everything below the lanes"],
  ["g", "follow a running job"],
  ["t", "light or dark"],
  ["/", "search"],
  ["Esc", "let go of what is pinned or selected"],
  ["?", "this"],
];
const LOOKS: [string, string][] = [
  ["pale, then full", "waiting for other ranks, then moving data"],
  ["dashed", "no time of the GPU's: only what the host saw; hover says why"],
  ["cut corner", "GPU stamps repaired: NCCL had given them to another operation"],
  ["soft end", "at least so long: stamps are partial or early"],
  ["stripes, red end", "not ended when the capture did"],
  ["red frame", "ranks disagree on function, bytes or datatype"],
  ["italics, ↻", "function inferred from sends and receives; replay of a CUDA graph"],
  ["red circles", "states of network steps"],
  ["whisker", "how far the clock may be off"],
];

export function fillHelp(dialog: HTMLDialogElement): void {
  const rows = (pairs: [string, string][]) => pairs.map(([key, what]) => element("tr", "", element("td", "", element("kbd", "", key)), element("td", "", what)));
  dialog.replaceChildren(
    element("div", "title", "Keys"), element("table", "", ...rows(KEYS)), element("div", "title", "How bars look"), element("table", "", ...rows(LOOKS)),
    button("close", "", () => dialog.close()),
  );
}
