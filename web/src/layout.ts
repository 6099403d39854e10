// Lanes as lines of the page: which are unfolded, where each begins, which rows it shows.
import type { Lane, Scene, Track } from "./types";

export interface Line {
  y: number;
  height: number;
  depth: number; // of indentation
  lane: Lane;
  head: boolean; // the lane's first line: has its name
  title: string;
  note: string;
  state: string;
  foldable: boolean;
  folded: boolean;
  kind: string; // of its bars; "" for none, "mixed" for several
  strips: number[][]; // rows by strip; several rows in one strip are drawn over each other
  stripHeight: number;
  process?: number;
}

/** Where a row is drawn, in pixels of the lanes. */
export interface RowPlace {
  y: number;
  height: number;
}

export const BANDWIDTH = "bandwidth";
export const COUNTER = "counter";
// Heights in pixels.
const OPERATION_STRIP = 19;
const EVENT_STRIP = 15;
const THIN_STRIP = 11;
const LINE_TRACK = 34;
const PLAIN = 20;
const MANY_RANKS = 16; // are folded at first
const MOST_OVERLAID = 256; // rows in a folded lane's one strip
const CLOSED_LEVELS = new Set(["thread", "channel", "proxy", "machine"]);

/** What a user has chosen to see. */
export interface Choice {
  flipped: Set<string>;
  hidden: Set<string>;
  ranks?: Set<number>;
  communicators?: Set<string>;
}

function countRanks(lanes: Lane[]): number {
  return lanes.reduce((sum, lane) => sum + lane.children.filter((child) => child.level === "rank").length, 0);
}

/** Lines instead of bars. */
export function isLineTrack(kind: string): boolean {
  return kind === BANDWIDTH || kind === COUNTER;
}

function isFolded(lane: Lane, choice: Choice, many: boolean): boolean {
  const closed = CLOSED_LEVELS.has(lane.level) || (many && lane.level === "rank");
  return closed !== choice.flipped.has(lane.key);
}

function wanted(lane: Lane, choice: Choice): boolean {
  if (lane.level === "rank" && choice.ranks && !choice.ranks.has(lane.ids.rank ?? -1)) return false;
  if (lane.level === "communicator" && choice.communicators) return choice.communicators.has(lane.title);
  return true;
}

function shown(lane: Lane, choice: Choice): Track[] {
  return lane.tracks.filter((track) => !choice.hidden.has(track.kind));
}

/** Rows that stand for a folded lane: its own, else those of the lanes below. */
function summary(lane: Lane, choice: Choice): number[] {
  const rows: number[] = [];
  const operations = lane.level === "host" || lane.level === "rank" || lane.level === "communicator";
  const visit = (one: Lane) => {
    for (const track of shown(one, choice)) {
      if (track.kind === COUNTER) continue;
      if (!operations || track.kind === "operation" || track.kind === "coarse") rows.push(...track.rows);
    }
    for (const child of one.children) if (wanted(child, choice)) visit(child);
  };
  visit(lane);
  if (lane.level === "channel" && lane.tracks.some((track) => track.kind === "channel")) {
    return lane.tracks.find((track) => track.kind === "channel")?.rows ?? rows;
  }
  return rows;
}

function stripHeight(kind: string): number {
  if (kind === "operation" || kind === "coarse" || kind === "mixed") return OPERATION_STRIP;
  return kind === "ProxyStep" || kind === "NetPlugin" ? THIN_STRIP : EVENT_STRIP;
}

/** A rank with one communicator needs no line of its own. */
function joined(lane: Lane, choice: Choice): { lane: Lane; title: string; note: string } {
  const children = lane.children.filter((child) => wanted(child, choice));
  if (lane.level === "rank" && children.length === 1 && !lane.tracks.length) {
    const only = children[0];
    const note = [only.title, only.note, lane.note].filter(Boolean).join(" · ");
    return { lane: { ...only, state: lane.state }, title: lane.title, note };
  }
  return { lane, title: lane.title, note: lane.note };
}

/** All lines from top to bottom. */
export function layOut(scene: Scene, choice: Choice): { lines: Line[]; height: number } {
  const many = countRanks(scene.lanes) > MANY_RANKS;
  const lines: Line[] = [];
  let y = 0;
  const push = (line: Omit<Line, "y">) => {
    lines.push({ ...line, y });
    y += line.height;
  };
  const visit = (given: Lane, depth: number, process?: number) => {
    if (!wanted(given, choice)) return;
    const { lane, title, note } = joined(given, choice);
    process = given.ids.process ?? process;
    const folded = isFolded(lane, choice, many);
    const tracks = shown(lane, choice);
    if (
      CLOSED_LEVELS.has(lane.level) &&
      !tracks.length &&
      !lane.children.some((child) => shown(child, choice).length)
    )
      return;
    const foldable = lane.children.length > 0 || tracks.length > 0;
    const own =
      lane.level === "communicator" ? tracks.find((track) => track.kind === "operation") : undefined;
    const coarse = tracks.find((track) => track.kind === "coarse");
    const base = { depth, lane, title, note, state: lane.state, foldable, folded, head: true, process };
    const marks = lane.level === "communicator" ? tracks.find((track) => track.kind === "Comm") : undefined;
    const first = folded ? undefined : (own ?? coarse ?? marks);
    const moments = own && marks; // in the first strip
    const below = folded ? summary(lane, choice) : [];
    if (below.length > MOST_OVERLAID)
      base.note = [note, `the first ${MOST_OVERLAID} of ${below.length} rows`].filter(Boolean).join(" · ");
    const strips = first ? first.rows.map((row) => [row]) : folded ? [below.slice(0, MOST_OVERLAID)] : [];
    if (first && moments) strips[0].push(...moments.rows);
    const kind = first ? first.kind : folded ? "mixed" : "";
    const each = stripHeight(kind || "mixed");
    push({ ...base, kind, strips, stripHeight: each, height: Math.max(strips.length * each + 3, PLAIN) });
    if (folded) return;
    if (own && !choice.hidden.has(BANDWIDTH)) {
      push({
        ...base,
        head: false,
        title: "busbw",
        note: "GB/s",
        state: "",
        kind: BANDWIDTH,
        strips: [own.rows],
        stripHeight: LINE_TRACK - 4,
        height: LINE_TRACK,
      });
    }
    for (const track of tracks) {
      if (track === first || track === moments) continue;
      if (track.kind === COUNTER) {
        const line = {
          ...base,
          head: false,
          state: "",
          kind: COUNTER,
          stripHeight: LINE_TRACK - 4,
          height: LINE_TRACK,
        };
        track.rows.forEach((row, n) =>
          push({
            ...line,
            title: track.lines?.[n][0] ?? "",
            note: track.lines?.[n][1] ?? "",
            strips: [[row]],
          }),
        );
        continue;
      }
      const height = stripHeight(track.kind);
      push({
        ...base,
        head: false,
        title: track.title,
        note: "",
        state: "",
        kind: track.kind,
        strips: track.rows.map((row) => [row]),
        stripHeight: height,
        height: track.rows.length * height + 2,
      });
    }
    for (const child of lane.children) visit(child, depth + 1, process);
  };
  for (const lane of scene.lanes) visit(lane, 0);
  return { lines, height: y };
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

function ascending(rows: number[]): number[] {
  return [...new Set(rows)].sort((a, b) => a - b);
}

/** Rows whose bars have a line of their own. */
export function barRows(lines: Line[]): number[] {
  return ascending(
    lines
      .filter((line) => !isLineTrack(line.kind) && line.kind !== "mixed")
      .flatMap((line) => line.strips.flat()),
  );
}

/** Rows that hold the operations of the lines, folded or not. */
export function operationRows(lines: Line[]): number[] {
  const holds = (line: Line) => line.kind === "operation" || (line.folded && line.lane.level !== "thread");
  return ascending(lines.filter(holds).flatMap((line) => line.strips.flat()));
}

/** Rows and their vertical places, for lines between bars. */
export function rowPlaces(lines: Line[]): Map<number, RowPlace> {
  const places = new Map<number, RowPlace>();
  for (const line of lines) {
    if (isLineTrack(line.kind)) continue;
    line.strips.forEach((rows, strip) => {
      for (const row of rows) {
        const place = { y: line.y + 2 + strip * line.stripHeight, height: line.stripHeight - 2 };
        if (!places.has(row) || line.kind !== "mixed") places.set(row, place);
      }
    });
  }
  return places;
}

/** Names of rows that stay the same from scene to scene. */
export function rowKeys(lanes: Lane[]): {
  keys: Map<number, string>;
  rows: Map<string, number>;
  paths: Map<number, Lane[]>;
} {
  const keys = new Map<number, string>();
  const rows = new Map<string, number>();
  const paths = new Map<number, Lane[]>();
  const visit = (lane: Lane, path: Lane[]) => {
    const here = [...path, lane];
    for (const track of lane.tracks) {
      track.rows.forEach((row, place) => {
        const key = `${lane.key}/${track.kind}/${place}`;
        keys.set(row, key);
        rows.set(key, row);
        paths.set(row, here);
      });
    }
    for (const child of lane.children) visit(child, here);
  };
  for (const lane of lanes) visit(lane, []);
  return { keys, rows, paths };
}

/** Lanes that must be flipped so that a row has a line of its own. */
export function unfolding(scene: Scene, choice: Choice, path: Lane[]): string[] {
  const many = countRanks(scene.lanes) > MANY_RANKS;
  return path.filter((lane) => isFolded(lane, choice, many)).map((lane) => lane.key);
}
