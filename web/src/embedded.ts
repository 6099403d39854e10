// The page itself as a source of data: a file that needs no server.
import { OTHER_FUNCTION } from "./colours";
import { COUNTER } from "./layout";
import { WIDTH } from "./tiles";
import type {
  Field,
  Filter,
  Found,
  Glance,
  Group,
  Item,
  Jumps,
  Lane,
  Marks,
  Place,
  Runs,
  Scene,
  Source,
  Span,
  State,
} from "./types";

type Told = [
  title: string,
  schema: number,
  values: Field["value"][],
  states: [string, number, Record<string, unknown>][],
  parent: [number, number] | null,
  looks: string[],
  error: number | null,
  instance: number,
];

interface PackedRow {
  kind: string;
  start: string;
  end: string;
  code: string;
  look: string;
  wait?: string;
  size?: string;
  timed?: string;
  source?: string;
  rank?: string;
  bus?: string;
  items: Told[];
}

export interface Packed {
  scene: Scene;
  rows: PackedRow[];
  schemas: [string, string, string][][];
  jumps: Jumps;
}

interface Row {
  kind: string;
  start: Float64Array;
  end: Float64Array;
  code: Uint8Array;
  look: Uint8Array;
  wait?: Float64Array;
  size?: Float64Array;
  timed?: Uint8Array;
  source?: Uint8Array;
  rank?: Float64Array;
  bus?: Float64Array;
  items: Told[];
  communicator: string;
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const doubles = (text: string) => new Float64Array(bytes(text).buffer);

/** What the file holds, from gzip in base64. */
export async function unpacked(text: string): Promise<Packed> {
  const stream = new Blob([bytes(text.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as Packed;
}

/** Bars of one row in a tile: wide ones alone, narrow ones of a pixel together. */
export function runsOf(
  row: {
    start: Float64Array;
    end: Float64Array;
    code: Uint8Array;
    look: Uint8Array;
    wait?: Float64Array;
    size?: Float64Array;
  },
  zoom: number,
  place: number,
  fits: (bar: number) => boolean = () => true,
): Runs {
  const pixel = 2 ** zoom;
  const first = place * WIDTH * pixel;
  const last = first + WIDTH * pixel;
  const out: number[][] = []; // x0, x1, item, count, busy, waited, longest, looks
  let column = NaN;
  for (let bar = lowerBound(row.end, first); bar < row.start.length && row.start[bar] < last; bar++) {
    if (!fits(bar)) continue;
    const [x0, x1] = [(row.start[bar] - first) / pixel, (row.end[bar] - first) / pixel];
    const [length, waited] = [row.end[bar] - row.start[bar], row.wait?.[bar] ?? 0];
    const here = length >= pixel ? NaN : Math.floor(x0);
    const run = out[out.length - 1];
    if (run && here === column) {
      run[1] = Math.max(run[1], x1);
      run[3]++;
      run[4] += length;
      run[5] += waited;
      if (length > run[6]) [run[2], run[6]] = [bar, length];
      run[7] |= row.look[bar];
    } else out.push([x0, x1, bar, 1, length, waited, length, row.look[bar]]);
    column = here;
  }
  const at = (n: number) => out.map((run) => run[n]);
  const share = (part: number, whole: number) => Math.round(255 * Math.min(part / Math.max(whole, 1), 1));
  return {
    length: out.length,
    x0: Float32Array.from(at(0)),
    x1: Float32Array.from(at(1)),
    item: Uint32Array.from(at(2)),
    count: Uint32Array.from(at(3)),
    value: Float32Array.from(out, (run) => (run[3] === 1 && row.size ? row.size[run[2]] : -1)),
    code: Uint8Array.from(out, (run) => row.code[run[2]]),
    look: Uint8Array.from(at(7)),
    fill: Uint8Array.from(out, (run) => share(run[4], Math.max((run[1] - run[0]) * pixel, run[4]))),
    wait: Uint8Array.from(out, (run) => share(run[5], run[4])),
  };
}

function lowerBound(values: Float64Array, limit: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

function quantile(sorted: number[], share: number): number | null {
  if (!sorted.length) return null;
  const place = (sorted.length - 1) * share;
  const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return low + (high - low) * (place - Math.floor(place));
}

export class EmbeddedSource implements Source {
  private rows: Row[];
  private instances = new Map<number, [number, number][]>();

  constructor(private packed: Packed) {
    const communicators = new Map<number, string>();
    const visit = (lane: Lane, name: string) => {
      const here = lane.level === "communicator" ? lane.title : name;
      for (const track of lane.tracks) for (const row of track.rows) communicators.set(row, here);
      for (const child of lane.children) visit(child, here);
    };
    for (const lane of packed.scene.lanes) visit(lane, "");
    this.rows = packed.rows.map((row, number) => ({
      kind: row.kind,
      items: row.items,
      communicator: communicators.get(number) ?? "",
      start: doubles(row.start),
      end: doubles(row.end),
      code: bytes(row.code),
      look: bytes(row.look),
      wait: row.wait === undefined ? undefined : doubles(row.wait),
      size: row.size === undefined ? undefined : doubles(row.size),
      timed: row.timed === undefined ? undefined : bytes(row.timed),
      source: row.source === undefined ? undefined : bytes(row.source),
      rank: row.rank === undefined ? undefined : doubles(row.rank),
      bus: row.bus === undefined ? undefined : doubles(row.bus),
    }));
    this.rows.forEach((row, number) => {
      row.items.forEach((told, item) => {
        const instance = told[7];
        if (instance < 0) return;
        const members = this.instances.get(instance);
        if (members) members.push([number, item]);
        else this.instances.set(instance, [[number, item]]);
      });
    });
  }

  state(): Promise<State> {
    return Promise.resolve(this.packed.scene);
  }

  scene(): Promise<Scene> {
    return Promise.resolve(this.packed.scene);
  }

  private fits(row: Row, filter: Filter): (bar: number) => boolean {
    const { functions, sources, leastBytes, mostBytes } = filter;
    return (bar) =>
      !(functions && row.code[bar] <= OTHER_FUNCTION && !functions.includes(row.code[bar])) &&
      !(sources && row.source && !sources.includes(row.source[bar])) &&
      !(leastBytes !== undefined && row.size && row.size[bar] < leastBytes) &&
      !(mostBytes !== undefined && row.size && row.size[bar] > mostBytes);
  }

  tile(zoom: number, place: number, rows: number[], filter: Filter): Promise<Runs[]> {
    return Promise.resolve(
      rows.map((row) => runsOf(this.rows[row], zoom, place, this.fits(this.rows[row], filter))),
    );
  }

  line(zoom: number, place: number, rows: number[]): Promise<Float32Array> {
    const out = new Float32Array(WIDTH);
    const known = new Float64Array(WIDTH); // ns of a pixel that have a bar
    const pixel = 2 ** zoom;
    const first = place * WIDTH * pixel;
    for (const { start, end, bus, kind } of rows.map((row) => this.rows[row])) {
      if (!bus) continue;
      for (
        let bar = lowerBound(end, first);
        bar < start.length && start[bar] < first + WIDTH * pixel;
        bar++
      ) {
        const speed = bus[bar] / Math.max(end[bar] - start[bar], 1);
        const to = Math.min(Math.ceil((end[bar] - first) / pixel), WIDTH);
        for (let x = Math.max(Math.floor((start[bar] - first) / pixel), 0); x < to; x++) {
          const covered = Math.max(
            Math.min(end[bar], first + (x + 1) * pixel) - Math.max(start[bar], first + x * pixel),
            0,
          );
          out[x] += (speed * covered) / pixel;
          known[x] += covered;
        }
      }
      // Without bars no bytes were moved, but a counter is unknown.
      if (kind === COUNTER)
        for (let x = 0; x < WIDTH; x++) out[x] = known[x] ? (out[x] * pixel) / known[x] : NaN;
    }
    return Promise.resolve(out);
  }

  private place(row: number, item: number): Place {
    return { row, item, start_ns: this.rows[row].start[item], end_ns: this.rows[row].end[item] };
  }

  item(row: number, item: number): Promise<Item> {
    const told = this.rows[row].items[item];
    if (!told) return Promise.reject(new Error("there is no such bar"));
    const [title, schema, values, states, parent, looks, error, instance] = told;
    return Promise.resolve({
      ...this.place(row, item),
      kind: this.rows[row].kind,
      code: this.rows[row].code[item],
      title,
      looks,
      error_ns: error,
      fields: this.packed.schemas[schema].map(([name, unit, source], n) => ({
        name,
        unit,
        source,
        value: values[n],
      })),
      states: states.map(([name, at_ns, more]) => ({ name, at_ns, more })),
      parent: parent && this.place(...parent),
      instance: (this.instances.get(instance) ?? []).map((one) => this.place(...one)),
      instance_number: instance,
    });
  }

  marks(rows: number[], first: number, last: number): Promise<Marks> {
    const marks: Marks = { bars: 0, parents: [], instances: [], states: [] };
    for (const row of rows) {
      const { start, end, items, kind } = this.rows[row];
      for (let bar = lowerBound(end, first); bar < start.length && start[bar] < last; bar++) {
        const [, , , states, parent, , , instance] = items[bar];
        const child = this.place(row, bar);
        marks.bars++;
        if (parent && kind !== "channel") marks.parents.push({ child, parent: this.place(...parent) });
        if (instance >= 0) marks.instances.push({ instance, ...child });
        for (const [name, at_ns] of states)
          marks.states.push({ row, at_ns, name, length_ns: end[bar] - start[bar] });
      }
    }
    return Promise.resolve(marks);
  }

  span(rows: number[], first: number, last: number, filter: Filter): Promise<Span> {
    const found = new Map<string, { group: Group; durations: number[]; bus: number; waited: number }>();
    let operations = 0;
    for (const row of rows.map((number) => this.rows[number]).filter((one) => one.kind === "operation")) {
      const fits = this.fits(row, filter);
      for (let bar = lowerBound(row.start, first); bar < row.start.length && row.start[bar] < last; bar++) {
        if (!fits(bar)) continue;
        operations++;
        const name = row.items[bar][0];
        const key = `${row.communicator}/${name}`;
        const group = {
          communicator: row.communicator,
          function: name,
          operations: 0,
          timed: 0,
          bytes: 0,
          time_ns: 0,
          median_ns: null,
          p99_ns: null,
          busbw_gbs: null,
          wait_share: null,
        };
        const sums = found.get(key) ?? { group, durations: [], bus: 0, waited: 0 };
        found.set(key, sums);
        sums.group.operations++;
        sums.group.bytes += Math.max(row.size?.[bar] ?? 0, 0);
        if (!row.timed?.[bar]) continue;
        sums.durations.push(row.end[bar] - row.start[bar]);
        sums.bus += row.bus?.[bar] ?? 0;
        sums.waited += row.wait?.[bar] ?? 0;
      }
    }
    const groups = [...found.values()].map(({ group, durations, bus, waited }) => {
      durations.sort((a, b) => a - b);
      const time = durations.reduce((sum, one) => sum + one, 0);
      return {
        ...group,
        timed: durations.length,
        time_ns: time,
        median_ns: quantile(durations, 0.5),
        p99_ns: quantile(durations, 0.99),
        busbw_gbs: time > 0 && bus > 0 ? bus / time : null,
        wait_share: time > 0 ? waited / time : null,
      };
    });
    return Promise.resolve({
      groups: groups.sort((a, b) => b.time_ns - a.time_ns),
      operations,
      span_ns: last - first,
    });
  }

  find(text: string): Promise<{ count: number; found: Found[] }> {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found: Found[] = [];
    this.rows.forEach((row, number) => {
      if (row.kind !== "operation") return;
      row.items.forEach((told, item) => {
        const rank = row.rank?.[item] ?? -1;
        const hay = `${told[0]} ${row.communicator} rank:${rank} ${told[2].join(" ")}`.toLowerCase();
        if (!words.every((word) => (/^rank:/.test(word) ? `rank:${rank}` === word : hay.includes(word))))
          return;
        const place = this.place(number, item);
        found.push({
          ...place,
          function: told[0],
          rank,
          communicator: row.communicator,
          size_bytes: row.size?.[item] ?? -1,
          duration_ns: row.timed?.[item] ? place.end_ns - place.start_ns : -1,
          wait_ns: row.wait?.[item] ?? -1,
        });
      });
    });
    found.sort((a, b) => a.start_ns - b.start_ns);
    return Promise.resolve({ count: found.length, found: found.slice(0, 50) });
  }

  jumps(): Promise<Jumps> {
    return Promise.resolve(this.packed.jumps);
  }

  glance(width: number): Promise<Glance> {
    const busy = new Array<number>(width).fill(0);
    const wait = new Array<number>(width).fill(0);
    const operations = this.rows.filter((row) => row.kind === "operation");
    const pixel = this.packed.scene.span_ns / width;
    for (const row of operations) {
      for (let bar = 0; bar < row.start.length; bar++) {
        const share = (row.wait?.[bar] ?? 0) / Math.max(row.end[bar] - row.start[bar], 1);
        const to = Math.min(Math.ceil(row.end[bar] / pixel), width);
        for (let x = Math.max(Math.floor(row.start[bar] / pixel), 0); x < to; x++) {
          const covered =
            (Math.min(row.end[bar], (x + 1) * pixel) - Math.max(row.start[bar], x * pixel)) /
            pixel /
            operations.length;
          busy[x] += covered;
          wait[x] += covered * share;
        }
      }
    }
    return Promise.resolve({ busy, wait });
  }
}
