// Lanes as lines of the page: which are unfolded, where each begins, which rows it shows.
import { KIND } from "./generated";
import type { Lane, Scene, Track } from "./types";

export interface Line {
  y: number;
  height: number;
  depth: number; // of indentation
  lane: Lane;
  head: boolean; // the first line of the lane, which has its name
  title: string;
  note: string;
  state: string;
  foldable: boolean;
  folded: boolean;
  kind: string; // of its bars; "" for none, MIXED for several
  strips: number[][]; // rows by strip; several rows of one strip are drawn over each other
  stripHeight: number;
  process?: number;
}

/** Where a row is drawn, in pixels of the lanes. */
export interface RowPlace {
  y: number;
  height: number;
}

/** The user's choice of lanes and levels. */
export interface LaneChoice {
  toggledLanes: Set<string>; // folded or unfolded by hand
  hidden: Set<string>; // kinds
  ranks?: Set<number>;
  communicators?: Set<string>;
}

const MIXED = "mixed"; // a folded lane, which shows rows of several kinds
// Heights in pixels.
const OPERATION_STRIP = 19;
const EVENT_STRIP = 15;
const THIN_STRIP = 11;
const LINE_TRACK = 34;
const PLAIN = 20;
const MANY_RANKS = 16; // with more, ranks are folded at first
const OPERATIONS_ONLY = ["host", "rank", "communicator"]; // levels whose folded lanes show nothing else
const MOST_OVERLAID = 256; // rows in the one strip of a folded lane
const FOLDED_LEVELS = new Set(["thread", "channel", "proxy", "machine"]); // at first

function hasManyRanks(lanes: Lane[]): boolean {
  const ranks = lanes.flatMap((lane) => lane.children).filter((child) => child.level === "rank");
  return ranks.length > MANY_RANKS;
}

/** Whether a kind is drawn as a line instead of bars. */
export function isLineTrack(kind: string): boolean {
  return kind === KIND.bandwidth || kind === KIND.counter;
}

function isFolded(lane: Lane, choice: LaneChoice, manyRanks: boolean): boolean {
  const atFirst = FOLDED_LEVELS.has(lane.level) || (manyRanks && lane.level === "rank");
  return atFirst !== choice.toggledLanes.has(lane.key);
}

function isChosen(lane: Lane, choice: LaneChoice): boolean {
  if (lane.level === "rank" && choice.ranks) return choice.ranks.has(lane.ids.rank ?? -1);
  if (lane.level === "communicator" && choice.communicators) return choice.communicators.has(lane.title);
  return true;
}

function visibleTracks(lane: Lane, choice: LaneChoice): Track[] {
  return lane.tracks.filter((track) => !choice.hidden.has(track.kind));
}

function trackOf(tracks: Track[], kind: string): Track | undefined {
  return tracks.find((track) => track.kind === kind);
}

/** Rows that a folded lane shows: its own and those of the lanes below. */
function foldedRows(folded: Lane, choice: LaneChoice): number[] {
  const stamped = trackOf(folded.tracks, KIND.channel);
  if (folded.level === "channel" && stamped) return stamped.rows;
  const operationsOnly = OPERATIONS_ONLY.includes(folded.level);
  const rows: number[] = [];
  const visit = (lane: Lane) => {
    for (const { kind, rows: ofTrack } of visibleTracks(lane, choice)) {
      if (kind === KIND.counter) continue;
      if (!operationsOnly || kind === KIND.operation || kind === KIND.preview) rows.push(...ofTrack);
    }
    for (const child of lane.children) if (isChosen(child, choice)) visit(child);
  };
  visit(folded);
  return rows;
}

function stripHeight(kind: string): number {
  if (kind === KIND.operation || kind === KIND.preview || kind === MIXED) return OPERATION_STRIP;
  return kind === "ProxyStep" || kind === "NetPlugin" ? THIN_STRIP : EVENT_STRIP;
}

function joinNotes(...notes: string[]): string {
  return notes.filter(Boolean).join(" · ");
}

/** A rank with one communicator needs no line of its own: that of the communicator has its name. */
function mergeOnlyChild(lane: Lane, choice: LaneChoice): { lane: Lane; title: string; note: string } {
  const children = lane.children.filter((child) => isChosen(child, choice));
  if (lane.level !== "rank" || children.length !== 1 || lane.tracks.length) {
    return { lane, title: lane.title, note: lane.note };
  }
  const [only] = children;
  const note = joinNotes(only.title, only.note, lane.note);
  return { lane: { ...only, state: lane.state }, title: lane.title, note };
}

type Placed = Omit<Line, "y" | "height" | "kind" | "strips" | "stripHeight">;

/** Collects lines from top to bottom. */
class Lines {
  readonly lines: Line[] = [];
  height = 0;

  constructor(
    private choice: LaneChoice,
    private manyRanks: boolean,
  ) {}

  private push(line: Omit<Line, "y">): void {
    this.lines.push({ ...line, y: this.height });
    this.height += line.height;
  }

  addLane(given: Lane, depth: number, process?: number): void {
    if (!isChosen(given, this.choice)) return;
    const { lane, title, note } = mergeOnlyChild(given, this.choice);
    const own = given.ids.process ?? process;
    const tracks = visibleTracks(lane, this.choice);
    const isEmpty =
      !tracks.length && !lane.children.some((child) => visibleTracks(child, this.choice).length);
    if (FOLDED_LEVELS.has(lane.level) && isEmpty) return;
    const folded = isFolded(lane, this.choice, this.manyRanks);
    const foldable = lane.children.length > 0 || tracks.length > 0;
    const head = { depth, lane, title, note, state: lane.state, foldable, folded, head: true, process: own };
    if (folded) this.addFolded(head);
    else {
      this.addTracks(head, tracks);
      for (const child of lane.children) this.addLane(child, depth + 1, own);
    }
  }

  /** One strip with the rows of everything below. */
  private addFolded(head: Placed): void {
    const rows = foldedRows(head.lane, this.choice);
    const more = rows.length > MOST_OVERLAID ? `the first ${MOST_OVERLAID} of ${rows.length} rows` : "";
    this.addHead({ ...head, note: joinNotes(head.note, more) }, MIXED, [rows.slice(0, MOST_OVERLAID)]);
  }

  private addHead(head: Placed, kind: string, strips: number[][]): void {
    const each = stripHeight(kind || MIXED);
    const height = Math.max(strips.length * each + 3, PLAIN);
    this.push({ ...head, kind, strips, stripHeight: each, height });
  }

  /** The first line shows operations, a preview, or init and finalize; other tracks have lines below. */
  private addTracks(head: Placed, tracks: Track[]): void {
    const isCommunicator = head.lane.level === "communicator";
    const operations = isCommunicator ? trackOf(tracks, KIND.operation) : undefined;
    const marks = isCommunicator ? trackOf(tracks, KIND.communicator) : undefined;
    const first = operations ?? trackOf(tracks, KIND.preview) ?? marks;
    const strips = first ? first.rows.map((row) => [row]) : [];
    const overFirst = operations && marks; // init and finalize over the first strip of operations
    if (overFirst) strips[0].push(...overFirst.rows);
    this.addHead(head, first?.kind ?? "", strips);
    const below = { ...head, head: false, note: "", state: "" };
    if (operations && !this.choice.hidden.has(KIND.bandwidth)) {
      this.addLine({ ...below, title: "busbw", note: "GB/s" }, KIND.bandwidth, operations.rows);
    }
    for (const track of tracks) if (track !== first && track !== overFirst) this.addTrack(below, track);
  }

  private addTrack(below: Placed, { kind, title, rows, lines }: Track): void {
    if (kind === KIND.counter) {
      for (const [n, row] of rows.entries()) {
        const [name, unit] = lines?.[n] ?? ["", ""];
        this.addLine({ ...below, title: name, note: unit }, kind, [row]);
      }
      return;
    }
    const each = stripHeight(kind);
    const strips = rows.map((row) => [row]);
    this.push({ ...below, title, kind, strips, stripHeight: each, height: rows.length * each + 2 });
  }

  private addLine(below: Placed, kind: string, rows: number[]): void {
    this.push({ ...below, kind, strips: [rows], stripHeight: LINE_TRACK - 4, height: LINE_TRACK });
  }
}

/** All lines from top to bottom, and their height. */
export function layOut(scene: Scene, choice: LaneChoice): { lines: Line[]; height: number } {
  const layout = new Lines(choice, hasManyRanks(scene.lanes));
  for (const lane of scene.lanes) layout.addLane(lane, 0);
  return layout;
}

/** The first line that reaches below y. */
export function lineAt(lines: Line[], y: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lines[middle].y + lines[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low;
}

function sortedRows(rows: number[]): number[] {
  return [...new Set(rows)].sort((a, b) => a - b);
}

/** Rows whose bars have a line of their own. */
export function barRows(lines: Line[]): number[] {
  return sortedRows(
    lines
      .filter((line) => !isLineTrack(line.kind) && line.kind !== MIXED)
      .flatMap((line) => line.strips.flat()),
  );
}

/** Whether a line shows operations, folded or not. */
export function showsOperations(line: Line): boolean {
  return line.kind === KIND.operation || (line.folded && OPERATIONS_ONLY.includes(line.lane.level));
}

/** Rows that hold the operations of the lines, folded or not. */
export function operationRows(lines: Line[]): number[] {
  const holds = (line: Line) => line.kind === KIND.operation || (line.folded && line.lane.level !== "thread");
  return sortedRows(lines.filter(holds).flatMap((line) => line.strips.flat()));
}

/** Rows and their vertical places, for lines between bars. */
export function rowPlaces(lines: Line[]): Map<number, RowPlace> {
  const places = new Map<number, RowPlace>();
  for (const line of lines) {
    if (isLineTrack(line.kind)) continue;
    for (const [strip, rows] of line.strips.entries()) {
      const place = { y: line.y + 2 + strip * line.stripHeight, height: line.stripHeight - 2 };
      for (const row of rows) if (!places.has(row) || line.kind !== MIXED) places.set(row, place);
    }
  }
  return places;
}

/** Names of rows that stay the same from scene to scene, and the lanes above each row. */
export interface RowNames {
  keys: Map<number, string>;
  rows: Map<string, number>;
  paths: Map<number, Lane[]>;
}

export function rowNames(lanes: Lane[]): RowNames {
  const keys = new Map<number, string>();
  const rows = new Map<string, number>();
  const paths = new Map<number, Lane[]>();
  const visit = (lane: Lane, path: Lane[]) => {
    const here = [...path, lane];
    for (const track of lane.tracks) {
      for (const [place, row] of track.rows.entries()) {
        const key = `${lane.key}/${track.kind}/${place}`;
        keys.set(row, key);
        rows.set(key, row);
        paths.set(row, here);
      }
    }
    for (const child of lane.children) visit(child, here);
  };
  for (const lane of lanes) visit(lane, []);
  return { keys, rows, paths };
}

/** Keys of lanes that must be unfolded so that a row has a line of its own. */
export function lanesToUnfold(scene: Scene, choice: LaneChoice, path: Lane[]): string[] {
  const manyRanks = hasManyRanks(scene.lanes);
  return path.filter((lane) => isFolded(lane, choice, manyRanks)).map((lane) => lane.key);
}
