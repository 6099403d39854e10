// Data of the page, as the server sends it in JSON, and the interface of its source.
import type { Runs } from "./generated";

export interface Track {
  kind: string;
  title: string;
  rows: number[];
  lines?: [title: string, unit: string][]; // of counters, which are drawn as lines
}

export interface Lane {
  key: string;
  level: string; // host, rank, communicator, thread, channel, proxy, machine, device
  title: string;
  note: string;
  state: string; // of a rank that did not end by itself: killed …
  ids: { rank?: number; communicator?: number; process?: number };
  tracks: Track[];
  children: Lane[];
}

export interface State {
  generation: number; // counts scenes
  progress: string; // what the server is doing; "": nothing
  trouble: string;
}

export interface Scene extends State {
  capture: string;
  first_ns: string; // too large for a double
  wall_ns: string | null; // wall-clock time of the first ns
  span_ns: number;
  lanes: Lane[];
  completeness: string;
  notes: string[];
  has_model: boolean;
  errors_ns: Record<string, number | null>; // of clocks, by key of a host's lane
  ends: (number | null)[]; // by process: its last known time, if it did not end by itself
  pauses: [number, number][][]; // by process: when it only counted
  left_out?: string; // of a single file: what it does not hold
}

/** Where a bar is; times are ns since the scene's first. */
export interface Place {
  row: number;
  item: number; // place of the bar in its row
  start_ns: number;
  end_ns: number;
}

/** A place without a bar is a span of time. */
export type Target = Omit<Place, "row" | "item"> & Partial<Place>;

export interface Field {
  name: string;
  value: string | number | boolean;
  unit?: string;
  source: string;
}

/** Everything about one bar. */
export interface Item extends Place {
  kind: string;
  code: number;
  title: string;
  communicator?: string;
  looks: string[];
  error_ns: number | null;
  fields: Field[];
  states: { name: string; at_ns: number; more: Record<string, unknown> }[];
  parent: Place | null;
  instance: Place[];
  instance_number?: number;
}

/** Lines and marks over the bars in a window. */
export interface Marks {
  bars: number;
  parents: { child: Place; parent: Place }[];
  instances: (Place & { instance: number })[];
  states: { row: number; at_ns: number; name: string; length_ns: number }[];
}

/** Statistics of operations of one communicator and function. */
export interface Group {
  communicator: string;
  function: string;
  operations: number;
  timed: number;
  bytes: number;
  time_ns: number;
  median_ns: number | null;
  p99_ns: number | null;
  busbw_gbs: number | null;
  wait_share: number | null;
}

export interface SpanStatistics {
  groups: Group[];
  operations: number;
  span_ns: number;
}

export interface OperationSummary extends Place {
  function: string;
  rank: number;
  communicator: string;
  size_bytes: number;
  duration_ns: number;
  wait_ns: number;
  skew_ns?: number;
  last_rank?: number;
}

export interface SearchResult {
  count: number;
  matches: OperationSummary[]; // the first of them
}

export interface Finding extends Target {
  title: string;
  severity: string;
}

export interface Highlights {
  slowest: OperationSummary[];
  skewed: OperationSummary[];
  in_flight: OperationSummary[];
  findings: Finding[];
}

/** Which operations are shown. */
export interface OperationFilter {
  functions?: number[]; // colour codes
  sources?: number[];
  leastBytes?: number;
  mostBytes?: number;
}

/** The share of time that ranks were busy, and waited, over equal parts of the capture. */
export interface Overview {
  busy: number[];
  wait: number[];
}

/** Where the page gets its data: from the server, or from the file it is in. */
export interface Source {
  state(): Promise<State>;
  scene(): Promise<Scene>;
  tile(zoom: number, place: number, rows: number[], filter: OperationFilter): Promise<Runs[]>;
  line(zoom: number, place: number, rows: number[]): Promise<Float32Array>;
  item(row: number, item: number, filter: OperationFilter): Promise<Item>;
  marks(rows: number[], first: number, last: number): Promise<Marks>;
  span(rows: number[], first: number, last: number, filter: OperationFilter): Promise<SpanStatistics>;
  find(text: string): Promise<SearchResult>;
  highlights(): Promise<Highlights>;
  overview(width: number): Promise<Overview>;
}
