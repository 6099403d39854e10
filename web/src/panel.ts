// What is said beside the lanes: all about a bar, a span's statistics, lists to jump by. Texts come
// from the capture: they are set as text, never as markup.
import { button, element } from "./elements";
import { duration, fieldName, moment, size, wallClock } from "./text";
import type { Field, Finding, Found, Item, Jumps, Place, Scene, Span } from "./types";

const SOURCES: Record<string, string> = {
  nccl: "NCCL",
  host: "host",
  derived: "derived",
  ncclscope: "",
};

function shown(field: Field): string {
  if (typeof field.value !== "number") return String(field.value);
  if (field.unit === "moment") return moment(field.value);
  if (field.unit === "ns")
    return field.value >= 1000
      ? `${duration(field.value)} (${field.value.toLocaleString("en-US")} ns)`
      : duration(field.value);
  if (field.unit === "bytes") return `${size(field.value)} (${field.value.toLocaleString("en-US")} bytes)`;
  return String(field.value);
}

const TITLES: Record<string, string> = { pTimer: "pTimer (GPU ns)" };

const FIRST = ["duration_ns", "wait_ns", "wire_ns", "size_bytes", "source", "reason", "rank", "communicator"];

/** Fields that say something, those first that most people look for. */
export function inOrder(fields: Field[]): Field[] {
  const place = (field: Field) => (FIRST.indexOf(field.name) + FIRST.length + 1) % (FIRST.length + 1);
  return fields.filter((field) => field.value !== "").sort((a, b) => place(a) - place(b));
}

function rowsOf(item: Item, most: number): HTMLElement[] {
  return inOrder(item.fields)
    .slice(0, most)
    .map((field) => {
      const value = element("td", "value", shown(field));
      const name = element("td", "name", TITLES[field.name] ?? fieldName(field.name));
      return element("tr", "", name, value, element("td", "source", SOURCES[field.source] ?? field.source));
    });
}

function headOf(item: Item): HTMLElement[] {
  const length = item.end_ns - item.start_ns;
  const error = item.error_ns ? ` ± ${duration(item.error_ns)}` : "";
  const head = [
    element("div", "title", item.title),
    element(
      "div",
      "times",
      `${length > 0 ? duration(length) : "a moment"} from ${moment(item.start_ns)}${error}`,
    ),
  ];
  for (const look of item.looks) head.push(element("div", "look", look));
  return head;
}

const TALL = 16; // fields: more are told in two columns

/** The box at the mouse. */
export function tooltip(box: HTMLElement, item: Item): void {
  const rows = rowsOf(item, 60);
  const half = rows.length > TALL ? Math.ceil(rows.length / 2) : rows.length;
  const tables = [rows.slice(0, half), rows.slice(half)]
    .filter((part) => part.length)
    .map((part) => element("table", "", ...part));
  const states = element("table", "states", ...statesOf(item));
  box.replaceChildren(...headOf(item), element("div", "columns", ...tables), states);
}

function statesOf(item: Item): HTMLElement[] {
  return item.states.map((state) => {
    const more = Object.entries(state.more)
      .map(([name, value]) => `${name} ${value}`)
      .join(", ");
    return element(
      "tr",
      "",
      element("td", "name", state.name),
      element("td", "value", `+${duration(state.at_ns - item.start_ns)}`),
      element("td", "source", more),
    );
  });
}

export interface PanelActions {
  close(): void;
  go(place: { row?: number; item?: number; start_ns: number; end_ns: number }): void;
  fit(): void;
}

type RankOf = (row: number) => string;

/** Everything about the pinned bar. */
export function showItem(
  panel: HTMLElement,
  item: Item,
  scene: Scene,
  rankOf: RankOf,
  actions: PanelActions,
): void {
  const bar = element(
    "div",
    "bar",
    button("fit", "show it over the whole width (f)", actions.fit),
    button("×", "close (Esc)", actions.close),
  );
  const parts: Node[] = [bar, ...headOf(item)];
  if (scene.wall_ns)
    parts.push(element("div", "times", wallClock(BigInt(scene.wall_ns) + BigInt(Math.round(item.start_ns)))));
  parts.push(element("table", "", ...rowsOf(item, 500)));
  if (item.states.length)
    parts.push(element("h3", "", "states"), element("table", "states", ...statesOf(item)));
  if (item.parent) {
    const parent = item.parent;
    parts.push(button("go to its parent", "", () => actions.go(parent)));
  }
  if (item.instance.length > 1) {
    parts.push(element("h3", "", `the same operation on ${item.instance.length} ranks`));
    parts.push(arrivals(item, rankOf, actions));
  }
  panel.replaceChildren(...parts);
}

/** The first of a list and, of a long one, more of its end: who came last matters most. */
export function endsOf<T>(
  list: T[],
  first: number,
  last: number,
): { first: T[]; between: number; last: T[] } {
  if (list.length <= first + last) return { first: list, between: 0, last: [] };
  return { first: list.slice(0, first), between: list.length - first - last, last: list.slice(-last) };
}

/** When each rank arrived, relative to the first. */
function arrivals(item: Item, rankOf: RankOf, actions: PanelActions): HTMLElement {
  const ordered = [...item.instance].sort((a, b) => a.start_ns - b.start_ns);
  const earliest = ordered[0].start_ns;
  const spread = ordered[ordered.length - 1].start_ns - earliest;
  const lineOf = (one: Place) => {
    const late = one.start_ns - earliest;
    const line = button(`+${duration(late)}`, "go there", () => actions.go(one));
    line.style.setProperty("--share", String(spread > 0 ? late / spread : 0));
    if (one.row === item.row && one.item === item.item) line.classList.add("current");
    line.dataset.name = rankOf(one.row);
    return line;
  };
  const { first, between, last } = endsOf(ordered, 50, 150);
  const gap = between ? [element("div", "times", `${between.toLocaleString("en-US")} ranks between`)] : [];
  return element("div", "arrivals", ...first.map(lineOf), ...gap, ...last.map(lineOf));
}

function cells(row: (string | number)[], tag = "td"): HTMLElement {
  return element("tr", "", ...row.map((text) => element(tag, "", String(text))));
}

/** Statistics of the selected span, which begins at `first`; some rows of operations may have been left out. */
export function showSpan(
  panel: HTMLElement,
  span: Span,
  first: number,
  rowsLeftOut: number,
  actions: PanelActions,
): void {
  const head = ["comm", "function", "ops", "bytes", "median", "p99", "busbw", "wait"];
  const rows = span.groups.map((group) => {
    const untimed = group.operations - group.timed;
    return cells([
      group.communicator,
      group.function,
      untimed ? `${group.operations} (${untimed} untimed)` : group.operations,
      size(group.bytes),
      group.median_ns === null ? "–" : duration(group.median_ns),
      group.p99_ns === null ? "–" : duration(group.p99_ns),
      group.busbw_gbs === null ? "–" : `${group.busbw_gbs.toFixed(2)}`,
      group.wait_share === null ? "–" : `${Math.round(100 * group.wait_share)} %`,
    ]);
  });
  panel.replaceChildren(
    element(
      "div",
      "bar",
      button("fit", "show it over the whole width (f)", actions.fit),
      button("×", "close (Esc)", actions.close),
    ),
    element("div", "title", duration(span.span_ns)),
    element(
      "div",
      "times",
      `${span.operations.toLocaleString("en-US")} operations begin in it, from ${moment(first)}`,
    ),
    ...(rowsLeftOut
      ? [
          element(
            "div",
            "look",
            `without ${rowsLeftOut.toLocaleString("en-US")} more rows of operations: filter ranks or communicators`,
          ),
        ]
      : []),
    element("table", "statistics", cells(head, "th"), ...rows),
    element("div", "times", "Times on one rank; busbw in GB/s as in nccl-tests."),
  );
}

function foundLine(found: Found, text: string, act: () => void): HTMLElement {
  const line = button("", "go there", act);
  line.className = "found";
  line.append(
    element("span", "what", `${found.function} ${found.size_bytes >= 0 ? size(found.size_bytes) : ""}`),
    element("span", "where", `rank ${found.rank} · ${found.communicator}`),
    element("span", "how", text),
  );
  return line;
}

/** What a search gave. */
export function showFound(
  panel: HTMLElement,
  text: string,
  result: { count: number; found: Found[] },
  actions: PanelActions,
): void {
  const shownOnly = result.count > result.found.length ? `, the first ${result.found.length}` : "";
  panel.replaceChildren(
    element("div", "bar", button("×", "close (Esc)", actions.close)),
    element("div", "title", `${result.count.toLocaleString("en-US")} found${shownOnly}`),
    element("div", "times", text),
    ...result.found.map((one) =>
      foundLine(one, one.duration_ns >= 0 ? duration(one.duration_ns) : "–", () => actions.go(one)),
    ),
  );
}

function section(title: string, lines: HTMLElement[]): Node[] {
  return lines.length ? [element("h3", "", title), ...lines] : [];
}

/** Places that are worth a look. */
export function showJumps(panel: HTMLElement, jumps: Jumps, actions: PanelActions): void {
  const findings = jumps.findings.map((one: Finding) => {
    const line = button("", "go there", () => actions.go(one));
    line.className = `found finding ${one.severity === "critical" ? "critical" : ""}`;
    line.append(element("span", "what", one.title));
    return line;
  });
  const parts = [
    ...section("findings", findings),
    ...section(
      "not ended",
      jumps.in_flight.map((one) => foundLine(one, "in flight", () => actions.go(one))),
    ),
    ...section(
      "largest skew",
      jumps.skewed.map((one) => foundLine(one, duration(one.skew_ns ?? 0), () => actions.go(one))),
    ),
    ...section(
      "slowest",
      jumps.slowest.map((one) => foundLine(one, duration(one.duration_ns), () => actions.go(one))),
    ),
  ];
  const nothing = parts.length ? [] : [element("div", "times", "nothing yet")];
  panel.replaceChildren(
    element("div", "bar", button("×", "close (Esc)", actions.close)),
    element("div", "title", "where to look"),
    ...parts,
    ...nothing,
  );
}
