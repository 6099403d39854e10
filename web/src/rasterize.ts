// Bars as pixels, for a page that has no server: runs of a tile, lines, the overview.
import { KIND, type Runs, TILE_WIDTH } from "./generated";
import type { Overview } from "./types";

/** The bars of a row, in the order of time. Times are ns since the scene's first. */
export interface Bars {
  kind: string;
  start: Float64Array;
  end: Float64Array;
  code: Uint8Array;
  look: Uint8Array;
  wait?: Float64Array; // ns; -1: not known
  size?: Float64Array; // bytes; -1: not known
  amount?: Float64Array; // bytes on the bus, or value x time of a counter; -1: does not count
}

/** The first place whose value is not less than a limit. */
export function lowerBound(values: Float64Array, limit: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

interface Run {
  x0: number;
  x1: number;
  item: number; // the longest bar
  count: number;
  busy: number; // ns
  waited: number; // ns
  longest: number; // ns
  look: number;
}

/** The runs of one row in a tile: wide bars alone, narrow ones of a pixel together. */
export function runsOf(bars: Bars, zoom: number, place: number, isShown: (bar: number) => boolean): Runs {
  const pixel = 2 ** zoom;
  const first = place * TILE_WIDTH * pixel;
  const last = first + TILE_WIDTH * pixel;
  const runs: Run[] = [];
  let column = NaN; // of the run before; NaN: it is a wide bar
  for (let bar = lowerBound(bars.end, first); bar < bars.start.length && bars.start[bar] < last; bar++) {
    if (!isShown(bar)) continue;
    const [x0, x1] = [(bars.start[bar] - first) / pixel, (bars.end[bar] - first) / pixel];
    const length = bars.end[bar] - bars.start[bar];
    const waited = Math.max(bars.wait?.[bar] ?? 0, 0);
    const look = bars.look[bar];
    const here = length >= pixel ? NaN : Math.floor(x0);
    const run = runs[runs.length - 1];
    if (run && here === column) {
      run.x1 = Math.max(run.x1, x1);
      run.count++;
      run.busy += length;
      run.waited += waited;
      if (length > run.longest) [run.item, run.longest] = [bar, length];
      run.look |= look;
    } else runs.push({ x0, x1, item: bar, count: 1, busy: length, waited, longest: length, look });
    column = here;
  }
  return encodeRuns(runs, bars, pixel);
}

function encodeRuns(runs: Run[], bars: Bars, pixel: number): Runs {
  const share = (part: number, whole: number) => Math.round(255 * Math.min(part / Math.max(whole, 1), 1));
  return {
    length: runs.length,
    x0: Float32Array.from(runs, ({ x0 }) => x0),
    x1: Float32Array.from(runs, ({ x1 }) => x1),
    item: Uint32Array.from(runs, ({ item }) => item),
    count: Uint32Array.from(runs, ({ count }) => count),
    value: Float32Array.from(runs, ({ count, item }) => (count === 1 && bars.size ? bars.size[item] : -1)),
    code: Uint8Array.from(runs, ({ item }) => bars.code[item]),
    look: Uint8Array.from(runs, ({ look }) => look),
    fill: Uint8Array.from(runs, ({ busy, x0, x1 }) => share(busy, Math.max((x1 - x0) * pixel, busy))),
    wait: Uint8Array.from(runs, ({ waited, busy }) => share(waited, busy)),
  };
}

/** Calls `add` for each pixel that a bar covers, with the covered part of it in ns. */
function coverPixels(
  start: number,
  end: number,
  first: number,
  pixel: number,
  width: number,
  add: (x: number, covered: number) => void,
): void {
  const to = Math.min(Math.ceil((end - first) / pixel), width);
  for (let x = Math.max(Math.floor((start - first) / pixel), 0); x < to; x++) {
    add(x, Math.max(Math.min(end, first + (x + 1) * pixel) - Math.max(start, first + x * pixel), 0));
  }
}

/** By pixel of a tile: the bandwidth of some rows together in GB/s, or a counter; NaN: not known. */
export function lineOf(rows: Bars[], zoom: number, place: number): Float32Array {
  const line = new Float32Array(TILE_WIDTH);
  const pixel = 2 ** zoom;
  const first = place * TILE_WIDTH * pixel;
  const last = first + TILE_WIDTH * pixel;
  for (const { start, end, amount, kind } of rows) {
    if (!amount) continue;
    const known = new Float64Array(TILE_WIDTH); // ns of each pixel that have a bar
    for (let bar = lowerBound(end, first); bar < start.length && start[bar] < last; bar++) {
      const rate = Math.max(amount[bar], 0) / Math.max(end[bar] - start[bar], 1);
      coverPixels(start[bar], end[bar], first, pixel, TILE_WIDTH, (x, covered) => {
        line[x] += (rate * covered) / pixel;
        known[x] += covered;
      });
    }
    // Without a bar no bytes were moved; a counter is unknown.
    if (kind !== KIND.counter) continue;
    for (let x = 0; x < TILE_WIDTH; x++) line[x] = known[x] ? (line[x] * pixel) / known[x] : NaN;
  }
  return line;
}

/** The whole capture in a few pixels: the share of time that ranks were busy, and waited. */
export function overviewOf(rows: Bars[], span: number, width: number): Overview {
  const busy = new Array<number>(width).fill(0);
  const wait = new Array<number>(width).fill(0);
  const pixel = span / width;
  for (const bars of rows) {
    for (let bar = 0; bar < bars.start.length; bar++) {
      const length = Math.max(bars.end[bar] - bars.start[bar], 1);
      const share = Math.min(Math.max(bars.wait?.[bar] ?? 0, 0) / length, 1);
      coverPixels(bars.start[bar], bars.end[bar], 0, pixel, width, (x, covered) => {
        busy[x] += covered / pixel / rows.length;
        wait[x] += (covered * share) / pixel / rows.length;
      });
    }
  }
  return { busy, wait };
}
