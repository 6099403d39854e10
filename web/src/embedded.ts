// The page itself as a source of data: a file that needs no server. ncclscope/web/single_file.py writes it.
import {
  CAPTURED_STATE,
  KIND,
  KINDS_WITH_FUNCTION,
  KINDS_WITH_STATES,
  MOST_MARKED_BARS,
  MOST_MATCHES,
  type Runs,
} from "./generated";
import { type Bars, lineOf, lowerBound, overviewOf, runsOf } from "./rasterize";
import { type FieldOf, parseSearch } from "./search";
import { groupStatistics } from "./statistics";
import type {
  Field,
  Highlights,
  Item,
  Lane,
  Marks,
  OperationFilter,
  OperationSummary,
  Overview,
  Place,
  Scene,
  SearchResult,
  Source,
  SpanStatistics,
  State,
} from "./types";

type BarDetails = [
  title: string,
  schema: number,
  values: Field["value"][],
  states: [string, number, Record<string, unknown>][],
  parent: [number, number] | null,
  looks: string[],
  error: number | null,
  instance: number,
];

/** A row in the file: arrays as little-endian bytes in base64. */
interface EmbeddedRow {
  kind: string;
  start: string;
  end: string;
  code: string;
  look: string;
  details: BarDetails[];
  // Of operations and counters.
  amount?: string;
  // Of operations and their parts.
  operation?: string;
  size?: string;
  duration?: string;
  wait?: string;
  source?: string;
}

export interface EmbeddedData {
  scene: Scene;
  rows: EmbeddedRow[];
  schemas: [name: string, unit: string, source: string][][];
  highlights: Highlights;
}

interface Row extends Bars {
  details: BarDetails[];
  communicator: { row: number; name: string };
  operation?: Float64Array; // row of the model
  duration?: Float64Array; // ns; -1: not known
  source?: Uint8Array;
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function doubles(text: string): Float64Array {
  return new Float64Array(bytes(text).buffer);
}

/** The file's data, from gzip in base64. */
export async function decompress(text: string): Promise<EmbeddedData> {
  const stream = new Blob([bytes(text.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as EmbeddedData;
}

function decodeRow(row: EmbeddedRow, communicator: Row["communicator"]): Row {
  const optional = (text: string | undefined) => (text === undefined ? undefined : doubles(text));
  return {
    kind: row.kind,
    details: row.details,
    communicator,
    start: doubles(row.start),
    end: doubles(row.end),
    code: bytes(row.code),
    look: bytes(row.look),
    amount: optional(row.amount),
    operation: optional(row.operation),
    size: optional(row.size),
    duration: optional(row.duration),
    wait: optional(row.wait),
    source: row.source === undefined ? undefined : bytes(row.source),
  };
}

/** The communicator of each row, by the lanes. */
function communicatorsOf(lanes: Lane[]): Map<number, Row["communicator"]> {
  const byRow = new Map<number, Row["communicator"]>();
  const visit = (lane: Lane, above: Row["communicator"]) => {
    const isOne = lane.level === "communicator";
    const communicator = isOne ? { row: lane.ids.communicator ?? -1, name: lane.title } : above;
    for (const track of lane.tracks) for (const row of track.rows) byRow.set(row, communicator);
    for (const child of lane.children) visit(child, communicator);
  };
  for (const lane of lanes) visit(lane, NO_COMMUNICATOR);
  return byRow;
}
const NO_COMMUNICATOR = { row: -1, name: "" };

/** A function that tells whether a filter shows a bar of a row. */
function shownBy(row: Row, filter: OperationFilter): (bar: number) => boolean {
  const { functions, sources, leastBytes, mostBytes } = filter;
  if (!KINDS_WITH_FUNCTION.includes(row.kind)) return () => true;
  return (bar) =>
    !(functions && !functions.includes(row.code[bar])) &&
    !(sources && row.source && !sources.includes(row.source[bar])) &&
    !(leastBytes !== undefined && row.size && row.size[bar] < leastBytes) &&
    !(mostBytes !== undefined && row.size && row.size[bar] > mostBytes);
}

export class EmbeddedSource implements Source {
  private rows: Row[];
  private instances = new Map<number, [number, number][]>(); // row and bar of each member
  private fieldPositions: Map<string, number>[]; // by schema

  constructor(private data: EmbeddedData) {
    const communicators = communicatorsOf(data.scene.lanes);
    this.fieldPositions = data.schemas.map((fields) => new Map(fields.map(([name], n) => [name, n])));
    this.rows = data.rows.map((row, number) => decodeRow(row, communicators.get(number) ?? NO_COMMUNICATOR));
    for (const [number, row] of this.rows.entries()) {
      for (const [bar, [, , , , , , , instance]] of row.details.entries()) {
        if (instance < 0) continue;
        const members = this.instances.get(instance);
        if (members) members.push([number, bar]);
        else this.instances.set(instance, [[number, bar]]);
      }
    }
  }

  async state(): Promise<State> {
    return this.data.scene;
  }

  async scene(): Promise<Scene> {
    return this.data.scene;
  }

  async tile(zoom: number, place: number, rows: number[], filter: OperationFilter): Promise<Runs[]> {
    return rows.map((number) => {
      const row = this.rows[number];
      return runsOf(row, zoom, place, shownBy(row, filter));
    });
  }

  async line(zoom: number, place: number, rows: number[]): Promise<Float32Array> {
    return lineOf(
      rows.map((number) => this.rows[number]),
      zoom,
      place,
    );
  }

  private place(row: number, item: number): Place {
    return { row, item, start_ns: this.rows[row].start[item], end_ns: this.rows[row].end[item] };
  }

  async item(row: number, item: number): Promise<Item> {
    const details = this.rows[row].details[item];
    if (!details) throw new Error("there is no such bar");
    const [title, schema, values, states, parent, looks, error, instance] = details;
    const fields = this.data.schemas[schema];
    return {
      ...this.place(row, item),
      kind: this.rows[row].kind,
      code: this.rows[row].code[item],
      title,
      looks,
      error_ns: error,
      fields: fields.map(([name, unit, source], n) => ({ name, unit, source, value: values[n] })),
      states: states.map(([name, at_ns, more]) => ({ name, at_ns, more })),
      parent: parent && this.place(...parent),
      instance: (this.instances.get(instance) ?? []).map((member) => this.place(...member)),
      instance_number: instance,
    };
  }

  async marks(rows: number[], first: number, last: number): Promise<Marks> {
    const places = rows.flatMap((row) => this.barsBetween(row, Math.floor(first), Math.ceil(last)));
    const marks: Marks = { bars: places.length, parents: [], instances: [], states: [] };
    if (places.length > MOST_MARKED_BARS) return marks;
    for (const [row, bar] of places) {
      const { start, end, details, kind } = this.rows[row];
      if (!details.length) continue; // a counter
      const [, , , states, parent, , , instance] = details[bar];
      const child = this.place(row, bar);
      if (parent && kind !== KIND.channel) marks.parents.push({ child, parent: this.place(...parent) });
      if (instance >= 0) marks.instances.push({ instance, ...child });
      if (!KINDS_WITH_STATES.includes(kind)) continue;
      const length_ns = end[bar] - start[bar];
      for (const [name, at_ns] of states) marks.states.push({ row, at_ns, name, length_ns });
    }
    return marks;
  }

  private barsBetween(row: number, first: number, last: number): [number, number][] {
    const { start, end } = this.rows[row];
    const bars: [number, number][] = [];
    for (let bar = lowerBound(end, first); bar < start.length && start[bar] < last; bar++)
      bars.push([row, bar]);
    return bars;
  }

  async span(rows: number[], first: number, last: number, filter: OperationFilter): Promise<SpanStatistics> {
    const [from, to] = [Math.floor(first), Math.ceil(last)];
    const operations = [];
    for (const row of rows.map((number) => this.rows[number])) {
      if (row.kind !== KIND.operation) continue;
      const isShown = shownBy(row, filter);
      for (let bar = lowerBound(row.start, from); bar < row.start.length && row.start[bar] < to; bar++) {
        if (isShown(bar) && this.fieldOf(row, bar)("state") !== CAPTURED_STATE)
          operations.push(operationOf(row, bar));
      }
    }
    return { groups: groupStatistics(operations), operations: operations.length, span_ns: to - from };
  }

  /** Gives the fields of a bar by their names. */
  private fieldOf(row: Row, bar: number): FieldOf {
    const [, schema, values] = row.details[bar];
    const positions = this.fieldPositions[schema];
    return (name) => {
      const position = positions.get(name);
      return position === undefined ? undefined : values[position];
    };
  }

  async find(text: string): Promise<SearchResult> {
    const matches = parseSearch(text);
    if (!matches) return { count: 0, matches: [] };
    const hits: [operation: number, row: number, bar: number][] = [];
    for (const [number, row] of this.rows.entries()) {
      const { operation } = row;
      if (!operation) continue;
      for (let bar = 0; bar < row.start.length; bar++) {
        const field = this.fieldOf(row, bar);
        if (matches((name) => (name === "operation" ? operation[bar] : field(name))))
          hits.push([operation[bar], number, bar]);
      }
    }
    const startOf = ([, row, bar]: (typeof hits)[number]) => this.rows[row].start[bar];
    hits.sort((a, b) => startOf(a) - startOf(b) || a[0] - b[0]);
    const listed = hits.slice(0, MOST_MATCHES);
    return { count: hits.length, matches: listed.map(([, row, bar]) => this.summary(row, bar)) };
  }

  private summary(row: number, bar: number): OperationSummary {
    const { details, communicator, size, duration, wait } = this.rows[row];
    return {
      ...this.place(row, bar),
      function: details[bar][0],
      rank: Number(this.fieldOf(this.rows[row], bar)("global_rank") ?? -1),
      communicator: communicator.name,
      size_bytes: size?.[bar] ?? -1,
      duration_ns: duration?.[bar] ?? -1,
      wait_ns: wait?.[bar] ?? -1,
    };
  }

  async highlights(): Promise<Highlights> {
    return this.data.highlights;
  }

  async overview(width: number): Promise<Overview> {
    const operations = this.rows.filter(({ kind }) => kind === KIND.operation);
    return overviewOf(operations, this.data.scene.span_ns, width);
  }
}

function operationOf({ communicator, details, source, size, duration, wait, amount }: Row, bar: number) {
  return {
    communicator: communicator.row,
    communicatorName: communicator.name,
    function: details[bar][0],
    source: source?.[bar] ?? 0,
    size: size?.[bar] ?? -1,
    duration: duration?.[bar] ?? -1,
    wait: wait?.[bar] ?? -1,
    busBytes: amount?.[bar] ?? -1,
  };
}
