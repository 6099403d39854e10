// Tiles: runs of pixels by tile and row. They are decoded, cached, and requested when they are missing.
import { type Runs, TILE_FIELDS, TILE_WIDTH } from "./generated";
import type { OperationFilter, Source } from "./types";

/** The runs of each row: a tile holds the number of rows, of runs in each, then the runs field by field. */
export function decodeTile(buffer: ArrayBuffer): Runs[] {
  const rows = new Uint32Array(buffer, 0, 1)[0];
  const counts = new Uint32Array(buffer, 4, rows);
  const decoded: Record<string, unknown>[] = Array.from(counts, (length) => ({ length }));
  let offset = 4 * (rows + 1);
  for (const [name, FieldArray] of TILE_FIELDS) {
    for (const [row, length] of counts.entries()) {
      decoded[row][name] = new FieldArray(buffer, offset, length);
      offset += FieldArray.BYTES_PER_ELEMENT * length;
    }
  }
  return decoded as unknown as Runs[];
}

/** First and last place of the tiles that a window touches. */
export function tilesOf(first: number, last: number, zoom: number): [number, number] {
  const span = TILE_WIDTH * 2 ** zoom;
  return [Math.floor(first / span), Math.floor(last / span)];
}

/** The narrowest run at x, or -1. */
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

const MOST_CACHED = 60_000; // rows of tiles
const MOST_REQUESTS = 3; // at once
const MOST_ROWS = 400; // of one request
const RETRY_MS = 1000;

interface TileRequest {
  zoom: number;
  place: number;
  rows: number[];
}

function keyOf(zoom: number, place: number, row: number): string {
  return `${zoom}/${place}/${row}`;
}

/** A cache of tiles. Drawing asks it for tiles; `sendRequests` requests those that were missing. */
export class Tiles {
  private runs = new Map<string, Runs | null>(); // null: it was requested
  private lines = new Map<string, Float32Array | null>();
  private pending = new Map<string, TileRequest>(); // to be sent, by tile
  private requests = 0; // that were sent and not answered
  private epoch = 0; // counts scenes and filters

  constructor(
    private source: Source,
    private onArrival: () => void,
    private onError: (error: unknown) => void,
  ) {}

  filter: OperationFilter = {};

  /** Forgets everything, because there is another scene or filter. */
  clear(): void {
    this.epoch++;
    this.runs.clear();
    this.lines.clear();
    this.pending.clear();
  }

  /** Whether no request is pending. */
  get idle(): boolean {
    return this.requests === 0 && this.pending.size === 0;
  }

  /** A row's runs in a tile; they are requested if they are missing. */
  get(zoom: number, place: number, row: number): Runs | undefined {
    const key = keyOf(zoom, place, row);
    const runs = this.runs.get(key);
    if (runs === undefined) {
      this.runs.set(key, null);
      const tile = `${zoom}/${place}`;
      const request = this.pending.get(tile) ?? { zoom, place, rows: [] };
      request.rows.push(row);
      this.pending.set(tile, request);
    }
    return runs ?? undefined;
  }

  /** A row's runs in a tile, if they are in the cache. */
  peek(zoom: number, place: number, row: number): Runs | undefined {
    return this.runs.get(keyOf(zoom, place, row)) ?? undefined;
  }

  /** The line of some rows in a tile; it is requested if it is missing. */
  line(zoom: number, place: number, rows: number[]): Float32Array | undefined {
    const key = `${zoom}/${place}/${rows.join()}`;
    const line = this.lines.get(key);
    if (line === undefined) {
      this.lines.set(key, null);
      const epoch = this.epoch;
      this.requests++;
      this.source
        .line(zoom, place, rows)
        .then((values) => {
          if (epoch === this.epoch) this.lines.set(key, values);
        }, this.onError)
        .finally(() => {
          this.requests--;
          this.onArrival();
        });
    }
    return line ?? undefined;
  }

  /** Requests tiles that were missing while drawing. */
  sendRequests(): void {
    for (const [tile, request] of this.pending) {
      while (request.rows.length && this.requests < MOST_REQUESTS) {
        const rows = request.rows.splice(0, MOST_ROWS).sort((a, b) => a - b);
        void this.request(request.zoom, request.place, rows);
      }
      if (request.rows.length) return;
      this.pending.delete(tile);
    }
  }

  /** Drops requests that were not sent, because the view has moved on. */
  dropRequests(): void {
    for (const { zoom, place, rows } of this.pending.values()) {
      for (const row of rows) this.runs.delete(keyOf(zoom, place, row));
    }
    this.pending.clear();
  }

  private async request(zoom: number, place: number, rows: number[]): Promise<void> {
    const epoch = this.epoch;
    this.requests++;
    try {
      const runs = await this.source.tile(zoom, place, rows, this.filter);
      if (epoch !== this.epoch) return;
      for (const [n, row] of rows.entries()) this.runs.set(keyOf(zoom, place, row), runs[n]);
      for (const oldest of this.runs.keys()) {
        if (this.runs.size <= MOST_CACHED) break;
        this.runs.delete(oldest);
      }
    } catch (error) {
      if (epoch !== this.epoch) return;
      setTimeout(() => this.retry(zoom, place, rows), RETRY_MS);
      this.onError(error);
    } finally {
      this.requests--;
      this.onArrival();
    }
  }

  /** Lets the next frame request rows again. */
  private retry(zoom: number, place: number, rows: number[]): void {
    for (const key of rows.map((row) => keyOf(zoom, place, row))) {
      if (!this.runs.get(key)) this.runs.delete(key);
    }
    this.onArrival();
  }
}
