// Everything about one bar, in the tooltip and in the panel. Texts come from the capture: they are set as
// text, never as markup.
import { button, element } from "./elements";
import { type PanelActions, toolbar } from "./panel";
import { duration, fieldName, moment, size, wallClock } from "./text";
import type { Field, Item, Place, Scene } from "./types";

const SOURCE_NAMES: Record<string, string> = { nccl: "NCCL", ncclscope: "" };
const FIELD_TITLES: Record<string, string> = {
  pTimer: "pTimer (GPU ns)",
  global_rank: "rank",
  rank: "rank in communicator",
};
const FIRST_FIELDS = [
  "duration_ns",
  "wait_ns",
  "wire_ns",
  "size_bytes",
  "source",
  "reason",
  "global_rank",
  "communicator",
  "rank",
];
const MOST_FIELDS = 500;
const MOST_TOOLTIP_FIELDS = 60;
const ONE_COLUMN = 16; // fields; more are shown in two columns

function fieldText({ value, unit }: Field): string {
  if (typeof value !== "number") return String(value);
  const exact = value.toLocaleString("en-US");
  if (unit === "moment") return moment(value);
  if (unit === "ns") return value >= 1000 ? `${duration(value)} (${exact} ns)` : duration(value);
  if (unit === "bytes") return `${size(value)} (${exact} bytes)`;
  return String(value);
}

/** The fields with a value, the most important first. */
export function sortFields(fields: Field[]): Field[] {
  const count = FIRST_FIELDS.length + 1;
  const place = (field: Field) => (FIRST_FIELDS.indexOf(field.name) + count) % count;
  return fields.filter((field) => field.value !== "").sort((a, b) => place(a) - place(b));
}

function fieldRows(item: Item, most: number): HTMLElement[] {
  return sortFields(item.fields)
    .slice(0, most)
    .map((field) => {
      const name = element("td", "name", FIELD_TITLES[field.name] ?? fieldName(field.name));
      const value = element("td", "value", fieldText(field));
      return element(
        "tr",
        "",
        name,
        value,
        element("td", "source", SOURCE_NAMES[field.source] ?? field.source),
      );
    });
}

function stateRows(item: Item): HTMLElement[] {
  return item.states.map((state) => {
    const name = element("td", "name", state.name);
    const value = element("td", "value", `+${duration(state.at_ns - item.start_ns)}`);
    const more = Object.entries(state.more).map(([key, argument]) => `${key} ${argument}`);
    return element("tr", "", name, value, element("td", "source", more.join(", ")));
  });
}

function headOf(item: Item): HTMLElement[] {
  const length = item.end_ns - item.start_ns;
  const error = item.error_ns ? ` ± ${duration(item.error_ns)}` : "";
  const times = `${length > 0 ? duration(length) : "a moment"} from ${moment(item.start_ns)}${error}`;
  const looks = item.looks.map((look) => element("div", "look", look));
  return [element("div", "title", item.title), element("div", "times", times), ...looks];
}

export function fillTooltip(box: HTMLElement, item: Item): void {
  const rows = fieldRows(item, MOST_TOOLTIP_FIELDS);
  const half = rows.length > ONE_COLUMN ? Math.ceil(rows.length / 2) : rows.length;
  const columns = [rows.slice(0, half), rows.slice(half)].filter((column) => column.length);
  const tables = columns.map((column) => element("table", "", ...column));
  const states = element("table", "states", ...stateRows(item));
  box.replaceChildren(...headOf(item), element("div", "columns", ...tables), states);
}

type RankOf = (row: number) => string;

/** Shows everything about the pinned bar in the panel. */
export function showItem(
  panel: HTMLElement,
  item: Item,
  scene: Scene,
  rankOf: RankOf,
  actions: PanelActions,
): void {
  const parts: Node[] = [toolbar(actions, true), ...headOf(item)];
  if (scene.wall_ns) {
    const wallNs = BigInt(scene.wall_ns) + BigInt(Math.round(item.start_ns));
    parts.push(element("div", "times", wallClock(wallNs)));
  }
  parts.push(element("table", "", ...fieldRows(item, MOST_FIELDS)));
  if (item.states.length) {
    parts.push(element("h3", "", "states"), element("table", "states", ...stateRows(item)));
  }
  const { parent, instance } = item;
  if (parent) parts.push(button("go to its parent", "", () => actions.go(parent)));
  if (instance.length > 1) {
    parts.push(element("h3", "", `the same operation on ${instance.length} ranks`));
    parts.push(arrivals(item, rankOf, actions));
  }
  panel.replaceChildren(...parts);
}

/** The first and the last of a long list, and the number between them; of a short list all. */
export function firstAndLast<T>(
  list: T[],
  first: number,
  last: number,
): { first: T[]; between: number; last: T[] } {
  if (list.length <= first + last) return { first: list, between: 0, last: [] };
  return { first: list.slice(0, first), between: list.length - first - last, last: list.slice(-last) };
}

/** When each rank arrived, relative to the first. Of many ranks the last matter most. */
function arrivals(item: Item, rankOf: RankOf, actions: PanelActions): HTMLElement {
  const ordered = [...item.instance].sort((a, b) => a.start_ns - b.start_ns);
  const earliest = ordered[0].start_ns;
  const skew = ordered[ordered.length - 1].start_ns - earliest;
  const lineOf = (member: Place) => {
    const late = member.start_ns - earliest;
    const line = button(`+${duration(late)}`, "go there", () => actions.go(member));
    line.style.setProperty("--share", String(skew > 0 ? late / skew : 0));
    if (member.row === item.row && member.item === item.item) line.classList.add("current");
    line.dataset.name = rankOf(member.row);
    return line;
  };
  const { first, between, last } = firstAndLast(ordered, 50, 150);
  const gap = between ? [element("div", "times", `${between.toLocaleString("en-US")} ranks between`)] : [];
  return element("div", "arrivals", ...first.map(lineOf), ...gap, ...last.map(lineOf));
}
