// What the server tells, as JSON.

export interface Track {
  kind: string;
  title: string;
  rows: number[];
  lines?: [title: string, unit: string][]; // of rows that are drawn as lines
}

export interface Lane {
  key: string;
  level: string; // host, rank, communicator, thread, channel, proxy, machine, device
  title: string;
  note: string;
  state: string;
  ids: { rank?: number; communicator?: number; process?: number };
  tracks: Track[];
  children: Lane[];
}

export interface State {
  generation: number;
  progress: string;
  trouble: string;
}

export interface Scene extends State {
  capture: string;
  first_ns: string;
  wall_ns: string | null;
  span_ns: number;
  lanes: Lane[];
  names: Record<string, string>; // of colours
  sources: string[];
  complete: string;
  notes: string[];
  has_model: boolean;
  errors_ns: Record<string, number | null>;
  ends: (number | null)[]; // by process
  pauses: [number, number][][]; // by process: when it only counted
  thinned?: string; // of a file: what was left out
}

export interface Place {
  row: number;
  item: number;
  start_ns: number;
  end_ns: number;
}

export interface Field {
  name: string;
  value: string | number | boolean;
  unit?: string;
  source: string;
}

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

export interface Marks {
  bars: number;
  parents: { child: Place; parent: Place }[];
  instances: (Place & { instance: number })[];
  states: { row: number; at_ns: number; name: string; length_ns: number }[];
}

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

export interface Span {
  groups: Group[];
  operations: number;
  span_ns: number;
}

export interface Found extends Place {
  function: string;
  rank: number;
  communicator: string;
  size_bytes: number;
  duration_ns: number;
  wait_ns: number;
  skew_ns?: number;
  last_rank?: number;
}

export interface Finding {
  title: string;
  severity: string;
  start_ns: number;
  end_ns: number;
  row?: number;
  item?: number;
}

export interface Jumps {
  slowest: Found[];
  skewed: Found[];
  in_flight: Found[];
  findings: Finding[];
}

/** What a row shows in a tile, from left to right. Positions are pixels of the tile. */
export interface Runs {
  length: number;
  x0: Float32Array;
  x1: Float32Array;
  item: Uint32Array;
  count: Uint32Array;
  value: Float32Array; // what a label shows: bytes of an operation; negative: nothing
  code: Uint8Array;
  look: Uint8Array;
  fill: Uint8Array;
  wait: Uint8Array;
}

// Bits of a bar's look, as web/bars.py has them.
export const LOOK = {
  open: 1,
  untimed: 2,
  repaired: 4,
  inferred: 8,
  replay: 16,
  lowerBound: 32,
  cut: 64,
  mismatch: 128,
} as const;

export interface Filter {
  functions?: number[];
  sources?: number[];
  leastBytes?: number;
  mostBytes?: number;
}

/** How busy the capture was, and with how much waiting, over equal parts of its time. */
export interface Glance {
  busy: number[];
  wait: number[];
}

// Where a page gets its data: the server, or the file it is in.
export interface Source {
  state(): Promise<State>;
  scene(): Promise<Scene>;
  tile(zoom: number, place: number, rows: number[], filter: Filter): Promise<Runs[]>;
  line(zoom: number, place: number, rows: number[]): Promise<Float32Array>;
  item(row: number, item: number, filter: Filter): Promise<Item>;
  marks(rows: number[], first: number, last: number): Promise<Marks>;
  span(rows: number[], first: number, last: number, filter: Filter): Promise<Span>;
  find(text: string): Promise<{ count: number; found: Found[] }>;
  jumps(): Promise<Jumps>;
  glance(width: number): Promise<Glance>;
}
