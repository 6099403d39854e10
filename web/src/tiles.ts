// Runs of pixels by tile and row: decoding, keeping, asking for those that are missing.
import type { Filter, Runs, Source } from "./types";

export const WIDTH = 512; // pixels of a tile

/** Rows of runs: their number, the number of runs in each, then field by field. */
export function decodeTile(buffer: ArrayBuffer): Runs[] {
  const rows = new Uint32Array(buffer, 0, 1)[0];
  const counts = new Uint32Array(buffer, 4, rows);
  let offset = 4 * (rows + 1);
  const out: Runs[] = Array.from(counts, (length) => ({ length }) as Runs);
  const wide: [keyof Runs, typeof Float32Array | typeof Uint32Array][] = [
    ["x0", Float32Array],
    ["x1", Float32Array],
    ["item", Uint32Array],
    ["count", Uint32Array],
    ["value", Float32Array],
  ];
  for (const [name, type] of wide) {
    for (const runs of out) {
      (runs as unknown as Record<string, unknown>)[name] = new type(buffer, offset, runs.length);
      offset += 4 * runs.length;
    }
  }
  for (const name of ["code", "look", "fill", "wait"] as const) {
    for (const runs of out) {
      runs[name] = new Uint8Array(buffer, offset, runs.length);
      offset += runs.length;
    }
  }
  return out;
}

/** First and last place of the tiles that a window touches. */
export function tilesOf(first: number, last: number, zoom: number): [number, number] {
  const span = WIDTH * 2 ** zoom;
  return [Math.floor(first / span), Math.floor(last / span)];
}

/** The run of which a bar shows at x, the narrowest of several. */
export function runAt(runs: Runs, x: number, slack: number): number {
  let best = -1;
  let least = Infinity;
  for (let place = 0; place < runs.length; place++) {
    if (runs.x0[place] - slack > x) break;
    const width = runs.x1[place] - runs.x0[place];
    if (x <= runs.x1[place] + slack && width < least) {
      best = place;
      least = width;
    }
  }
  return best;
}

const MOST_KEPT = 60_000; // rows of tiles
const MOST_AT_ONCE = 3; // questions on their way
const MOST_ROWS = 400; // of one question

/** Tiles that were asked for. */
export class Tiles {
  private kept = new Map<string, Runs | null>(); // null: on its way
  private lines = new Map<string, Float32Array | null>();
  private running = 0;
  private wanted = new Map<string, { zoom: number; place: number; rows: number[] }>();
  private epoch = 0;

  constructor(
    private source: Source,
    private arrived: () => void,
    private failed: (error: unknown) => void,
  ) {}

  filter: Filter = {};

  /** Forgets everything: another scene or filter. */
  clear(): void {
    this.epoch++;
    this.kept.clear();
    this.lines.clear();
    this.wanted.clear();
  }

  /** Whether nothing is on its way. */
  get idle(): boolean {
    return this.running === 0 && this.wanted.size === 0;
  }

  /** A row's runs in a tile; asks for them if they are not there. */
  get(zoom: number, place: number, row: number): Runs | undefined {
    const key = `${zoom}/${place}/${row}`;
    const runs = this.kept.get(key);
    if (runs === undefined) {
      this.kept.set(key, null);
      const tile = `${zoom}/${place}`;
      const wanted = this.wanted.get(tile) ?? { zoom, place, rows: [] };
      wanted.rows.push(row);
      this.wanted.set(tile, wanted);
    }
    return runs ?? undefined;
  }

  /** The same without asking: what a coarser tile knows. */
  peek(zoom: number, place: number, row: number): Runs | undefined {
    return this.kept.get(`${zoom}/${place}/${row}`) ?? undefined;
  }

  /** A track's line in a tile. */
  line(zoom: number, place: number, rows: number[]): Float32Array | undefined {
    const key = `${zoom}/${place}/${rows.join()}`;
    const line = this.lines.get(key);
    if (line === undefined) {
      this.lines.set(key, null);
      const epoch = this.epoch;
      this.running++;
      this.source
        .line(zoom, place, rows)
        .then((found) => {
          if (epoch === this.epoch) this.lines.set(key, found);
        }, this.failed)
        .finally(() => {
          this.running--;
          this.arrived();
        });
    }
    return line ?? undefined;
  }

  /** Sends the questions that drawing has raised. */
  ask(): void {
    while (this.wanted.size && this.running < MOST_AT_ONCE) {
      const [key, wanted] = this.wanted.entries().next().value as [
        string,
        { zoom: number; place: number; rows: number[] },
      ];
      const rows = wanted.rows.splice(0, MOST_ROWS).sort((a, b) => a - b);
      if (!wanted.rows.length) this.wanted.delete(key);
      void this.fetch(wanted.zoom, wanted.place, rows);
    }
  }

  /** Forgets questions that were not sent: the view has moved on. */
  forget(): void {
    for (const { zoom, place, rows } of this.wanted.values()) {
      for (const row of rows) this.kept.delete(`${zoom}/${place}/${row}`);
    }
    this.wanted.clear();
  }

  private async fetch(zoom: number, place: number, rows: number[]): Promise<void> {
    const epoch = this.epoch;
    this.running++;
    try {
      const runs = await this.source.tile(zoom, place, rows, this.filter);
      if (epoch !== this.epoch) return;
      rows.forEach((row, n) => this.kept.set(`${zoom}/${place}/${row}`, runs[n]));
      while (this.kept.size > MOST_KEPT) {
        this.kept.delete(this.kept.keys().next().value as string);
      }
    } catch (error) {
      if (epoch === this.epoch) {
        // Asked again after a while, not at once.
        setTimeout(() => {
          for (const row of rows)
            if (!this.kept.get(`${zoom}/${place}/${row}`)) this.kept.delete(`${zoom}/${place}/${row}`);
          this.arrived();
        }, 1000);
        this.failed(error);
      }
    } finally {
      this.running--;
      this.arrived();
    }
  }
}
