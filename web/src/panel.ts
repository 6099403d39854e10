// The panel: statistics of a span, lists of operations. Texts come from the capture: they are set as text,
// never as markup.
import { button, element } from "./elements";
import { duration, moment, size } from "./text";
import type {
  Finding,
  Group,
  Highlights,
  OperationSummary,
  SearchResult,
  SpanStatistics,
  Target,
} from "./types";

export interface PanelActions {
  close(): void;
  go(target: Target): void;
  fit(): void;
}

/** The buttons at the top of the panel. */
export function toolbar(actions: PanelActions, canFit: boolean): HTMLElement {
  const fit = canFit ? [button("fit", "show it over the whole width (f)", actions.fit)] : [];
  return element("div", "bar", ...fit, button("×", "close (Esc)", actions.close));
}

function tableRow(texts: (string | number)[], tag = "td"): HTMLElement {
  return element("tr", "", ...texts.map((text) => element(tag, "", String(text))));
}

const PAGE = 50; // operations of a search that are listed at a time
const COLUMNS = ["comm", "function", "ops", "bytes", "median", "p99", "busbw", "wait"];

function groupRow(group: Group): HTMLElement {
  const untimed = group.operations - group.timed;
  const orDash = <T>(value: T | null, text: (value: T) => string) => (value === null ? "–" : text(value));
  return tableRow([
    group.communicator,
    group.function,
    untimed ? `${group.operations} (${untimed} untimed)` : group.operations,
    size(group.bytes),
    orDash(group.median_ns, duration),
    orDash(group.p99_ns, duration),
    orDash(group.busbw_gbs, (gbs) => gbs.toFixed(2)),
    orDash(group.wait_share, (share) => `${Math.round(100 * share)} %`),
  ]);
}

/** Shows statistics of the span that begins at `first`, and how many rows they leave out. */
export function showSpan(
  panel: HTMLElement,
  span: SpanStatistics,
  first: number,
  rowsLeftOut: number,
  actions: PanelActions,
): void {
  const count = `${span.operations.toLocaleString("en-US")} operations begin in it, from ${moment(first)}`;
  const more = `without ${rowsLeftOut.toLocaleString("en-US")} more rows of operations`;
  const note = rowsLeftOut ? [element("div", "look", `${more}: filter ranks or communicators`)] : [];
  panel.replaceChildren(
    toolbar(actions, true),
    element("div", "title", duration(span.span_ns)),
    element("div", "times", count),
    ...note,
    element("table", "statistics", tableRow(COLUMNS, "th"), ...span.groups.map(groupRow)),
    element("div", "times", "Times on one rank; busbw in GB/s as in nccl-tests, from exact times."),
  );
}

function operationButton(operation: OperationSummary, text: string, act: () => void): HTMLElement {
  const { size_bytes, rank, communicator } = operation;
  const line = button("", "go there", act);
  line.className = "entry";
  line.append(
    element("span", "what", `${operation.function} ${size_bytes >= 0 ? size(size_bytes) : ""}`),
    element("span", "where", `rank ${rank} · ${communicator}`),
    element("span", "how", text),
  );
  return line;
}

/** Shows the result of a search. */
export function showMatches(
  panel: HTMLElement,
  text: string,
  { count, matches }: SearchResult,
  actions: PanelActions,
): void {
  const first = count > matches.length ? `, the first ${matches.length} marked` : "";
  const entry = (operation: OperationSummary) => {
    const length = operation.duration_ns >= 0 ? duration(operation.duration_ns) : "–";
    return operationButton(operation, length, () => actions.go(operation));
  };
  const list = element("div", "");
  const more = button("", "list more of them", () => append());
  const append = () => {
    const listed = list.childElementCount;
    list.append(...matches.slice(listed, listed + PAGE).map(entry));
    const left = matches.length - list.childElementCount;
    more.textContent = `${Math.min(left, PAGE)} more`;
    more.hidden = !left;
  };
  append();
  panel.replaceChildren(
    toolbar(actions, false),
    element("div", "title", `${count.toLocaleString("en-US")} found${first}`),
    element("div", "times", text),
    list,
    more,
  );
}

function section(title: string, lines: HTMLElement[]): Node[] {
  return lines.length ? [element("h3", "", title), ...lines] : [];
}

function findingButton(finding: Finding, act: () => void): HTMLElement {
  const line = button("", "go there", act);
  line.className = `entry finding ${finding.severity === "critical" ? "critical" : ""}`;
  line.append(element("span", "what", finding.title));
  return line;
}

/** Shows findings and operations that are worth a look. */
export function showHighlights(panel: HTMLElement, highlights: Highlights, actions: PanelActions): void {
  const buttons = (operations: OperationSummary[], text: (operation: OperationSummary) => string) =>
    operations.map((operation) => operationButton(operation, text(operation), () => actions.go(operation)));
  const findings = highlights.findings.map((finding) => findingButton(finding, () => actions.go(finding)));
  const parts = [
    ...section("findings", findings),
    ...section(
      "not ended",
      buttons(highlights.in_flight, () => "in flight"),
    ),
    ...section(
      "largest skew",
      buttons(highlights.skewed, ({ skew_ns }) => duration(skew_ns ?? 0)),
    ),
    ...section(
      "slowest",
      buttons(highlights.slowest, ({ duration_ns }) => duration(duration_ns)),
    ),
  ];
  const nothing = parts.length ? [] : [element("div", "times", "nothing yet")];
  panel.replaceChildren(
    toolbar(actions, false),
    element("div", "title", "where to look"),
    ...parts,
    ...nothing,
  );
}
