// The drawing model: what is where, without a canvas.
import { describe, expect, it } from "vitest";
import { decodeAddress, encodeAddress } from "../src/address";
import { barAt } from "../src/hit";
import { barRows, layOut, lineAt, operationRows, rowKeys, rowPlaces, unfolding } from "../src/layout";
import { levelsOf, roundedUp, squeezed } from "../src/lines";
import { inventory, parseRanks, parseSize } from "../src/menu";
import { instanceLinks, joinedBy, keptApart, parentLink } from "../src/links";
import { namesOf } from "../src/names";
import { endsOf, inOrder } from "../src/panel";
import { ranges } from "../src/source";
import { duration, fitted, size, tickLabel, tickStep } from "../src/text";
import { type Tiles, decodeTile, runAt, tilesOf } from "../src/tiles";
import type { Lane, Runs, Scene } from "../src/types";
import { fitting, kept, panned, toTime, toX, zoomOf, zoomed } from "../src/view";

function lane(key: string, level: string, given: Partial<Lane> = {}): Lane {
  return { key, level, title: key, note: "", state: "", ids: {}, tracks: [], children: [], ...given };
}

function scene(ranks: number): Scene {
  let row = 0;
  const rankLanes = Array.from({ length: ranks }, (_, rank) =>
    lane(`r${rank}`, "rank", {
      ids: { rank, process: rank },
      children: [
        lane(`r${rank}/c0`, "communicator", {
          title: "world",
          tracks: [
            { kind: "operation", title: "operations", rows: [row++, row++] },
            { kind: "Comm", title: "init", rows: [row++] },
          ],
          children: [
            lane(`r${rank}/c0/t1`, "thread", {
              tracks: [{ kind: "CollApi", title: "CollApi", rows: [row++] }],
              children: [
                lane(`r${rank}/c0/t1/p`, "proxy", {
                  tracks: [{ kind: "ProxyStep", title: "ProxyStep", rows: [row++, row++] }],
                }),
              ],
            }),
          ],
        }),
      ],
    }),
  );
  return { lanes: [lane("h", "host", { children: rankLanes })], ends: [], names: {} } as unknown as Scene;
}

const ALL = { flipped: new Set<string>(), hidden: new Set<string>() };

describe("view", () => {
  it("keeps the moment under the mouse while zooming", () => {
    const view = { start: 1000, nsPerPixel: 8 };
    const near = zoomed(view, 300, 0.5, 1e9);
    expect(toTime(near, 300)).toBeCloseTo(toTime(view, 300));
    expect(near.nsPerPixel).toBe(4);
  });
  it("fits a stretch and keeps it on the page", () => {
    const view = fitting(1000, 2000, 500, 0);
    expect(toX(view, 1000)).toBeCloseTo(0);
    expect(toX(view, 2000)).toBeCloseTo(500);
    expect(kept(panned(view, 1e9), 3000, 500).start).toBeLessThan(3000);
    expect(toTime(kept(panned(view, -1e9), 3000, 500), 500)).toBeGreaterThan(0);
  });
  it("has tiles at most as coarse as the view", () => {
    expect(zoomOf({ start: 0, nsPerPixel: 1 })).toBe(0);
    expect(zoomOf({ start: 0, nsPerPixel: 1023 })).toBe(9);
    expect(zoomOf({ start: 0, nsPerPixel: 1024 })).toBe(10);
    expect(zoomOf({ start: 0, nsPerPixel: 0.1 })).toBe(0);
  });
  it("goes into the address and back", () => {
    const address = {
      first: 12345,
      span: 678,
      scroll: 40,
      flipped: ["h0/p0.0/c0", "h0/p1.1/c0/t7"],
      hidden: ["ProxyStep"],
      lines: false,
      filter: { functions: [0, 3], sources: [1], leastBytes: 1024, mostBytes: 2048 },
      ranks: [0, 5],
      communicators: ['<b>"tp", &=#'],
      pin: { key: "h0/p0.0/c0/operation/0", start: 99 },
      selection: [10, 20] as [number, number],
    };
    expect(decodeAddress(`#${encodeAddress(address)}`)).toEqual(address);
    expect(decodeAddress("#t=a,b&fn=x&comms=[").filter.functions).toBeUndefined();
    expect(decodeAddress("").flipped).toEqual([]);
    expect(decodeAddress("#ranks=").ranks).toBeUndefined();
  });
});

describe("layout", () => {
  it("joins a rank and its only communicator, and folds threads", () => {
    const { lines, height } = layOut(scene(2), ALL);
    expect(lines.map((line) => [line.title, line.kind])).toEqual([
      ["h", ""],
      ["r0", "operation"],
      ["busbw", "bandwidth"],
      ["r0/c0/t1", "mixed"],
      ["r1", "operation"],
      ["busbw", "bandwidth"],
      ["r1/c0/t1", "mixed"],
    ]);
    expect(lines[1].strips).toEqual([[0, 2], [1]]); // init in the first strip
    expect(height).toBe(lines[lines.length - 1].y + lines[lines.length - 1].height);
    for (let n = 1; n < lines.length; n++) expect(lines[n].y).toBe(lines[n - 1].y + lines[n - 1].height);
  });
  it("unfolds what a row needs, hides kinds, and filters ranks and communicators", () => {
    const given = scene(2);
    const { paths } = rowKeys(given.lanes);
    const flipped = new Set(unfolding(given, ALL, paths.get(4) as Lane[]));
    expect([...flipped]).toEqual(["r0/c0/t1", "r0/c0/t1/p"]);
    const open = layOut(given, { ...ALL, flipped }).lines;
    expect(open.find((line) => line.kind === "ProxyStep")?.strips).toEqual([[4], [5]]);
    const hidden = layOut(given, { flipped, hidden: new Set(["ProxyStep", "bandwidth"]) }).lines;
    expect(hidden.some((line) => line.kind === "ProxyStep" || line.kind === "bandwidth")).toBe(false);
    expect(layOut(given, { ...ALL, ranks: new Set([1]) }).lines.some((line) => line.title === "r0")).toBe(
      false,
    );
    expect(
      layOut(given, { ...ALL, communicators: new Set(["other"]) }).lines.some(
        (line) => line.kind === "operation",
      ),
    ).toBe(false);
  });
  it("shows counters of the machine as lines, folded at first, and as no bars", () => {
    const given = scene(2);
    const track = {
      kind: "counter",
      title: "counter",
      rows: [100, 101],
      lines: [
        ["clock", "MHz"],
        ["power", "W"],
      ] as [string, string][],
    };
    given.lanes[0].children.push(
      lane("h/machine", "machine", {
        children: [lane("h/machine/gpu3", "device", { title: "GPU 3", tracks: [track] })],
      }),
    );
    const closed = layOut(given, ALL).lines;
    expect(closed[closed.length - 1]).toMatchObject({ title: "h/machine", folded: true, strips: [[]] });
    const { lines } = layOut(given, { ...ALL, flipped: new Set(["h/machine"]) });
    expect(lines.slice(-3).map((line) => [line.title, line.note, line.kind, line.strips])).toEqual([
      ["GPU 3", "", "", []],
      ["clock", "MHz", "counter", [[100]]],
      ["power", "W", "counter", [[101]]],
    ]);
    expect(barRows(lines)).not.toContain(100);
    expect(rowPlaces(lines).has(100)).toBe(false);
    expect(inventory(given.lanes).kinds).toContain("counter");
    const hidden = layOut(given, { flipped: new Set(["h/machine"]), hidden: new Set(["counter"]) }).lines;
    expect(hidden.some((line) => line.kind === "counter")).toBe(false);
  });
  it("shows many ranks as one line each, with all their operations", () => {
    const lines = layOut(scene(64), ALL).lines;
    expect(lines.length).toBeLessThan(64 * 4 + 2);
  });
  it("says how many rows a folded lane does not show", () => {
    const host = layOut(scene(200), { ...ALL, flipped: new Set(["h"]) }).lines[0];
    expect(host.strips[0].length).toBe(256);
    expect(host.note).toBe("the first 256 of 400 rows");
    expect(layOut(scene(100), { ...ALL, flipped: new Set(["h"]) }).lines[0].note).toBe("");
  });
  it("knows rows of bars and rows of operations, folded or not", () => {
    const { lines } = layOut(scene(2), ALL);
    expect(barRows(lines)).toEqual([0, 1, 2, 6, 7, 8]); // not those of folded threads
    expect(operationRows(lines)).toEqual([0, 1, 2, 6, 7, 8]);
    const folded = layOut(scene(2), { ...ALL, flipped: new Set(["h"]) }).lines;
    expect(barRows(folded)).toEqual([]);
    expect(operationRows(folded)).toEqual([0, 1, 6, 7]);
  });
  it("offers what there is to choose from", () => {
    expect(inventory(scene(2).lanes)).toEqual({
      kinds: ["operation", "Comm", "CollApi", "ProxyStep"],
      communicators: ["world"],
    });
  });
  it("finds the line at a height", () => {
    const { lines } = layOut(scene(3), ALL);
    lines.forEach((line, n) => {
      expect(lineAt(lines, line.y)).toBe(n);
      expect(lineAt(lines, line.y + line.height - 0.5)).toBe(n);
    });
    expect(lineAt(lines, 1e9)).toBe(lines.length);
  });
});

describe("tiles", () => {
  it("are decoded field by field", () => {
    const buffer = new ArrayBuffer(4 * 3 + 2 * 24);
    new Uint32Array(buffer, 0, 3).set([2, 0, 2]);
    new Float32Array(buffer, 12, 4).set([1, 5, 3, 9]);
    new Uint32Array(buffer, 28, 4).set([7, 8, 1, 30]);
    new Float32Array(buffer, 44, 2).set([1024, -1]);
    new Uint8Array(buffer, 52, 8).set([0, 64, 1, 0, 255, 9, 100, 0]);
    const [none, runs] = decodeTile(buffer);
    expect(none.length).toBe(0);
    expect([...runs.x1]).toEqual([3, 9]);
    expect([...runs.item]).toEqual([7, 8]);
    expect([...runs.count]).toEqual([1, 30]);
    expect([...runs.value]).toEqual([1024, -1]);
    expect([...runs.code, ...runs.look, ...runs.fill, ...runs.wait]).toEqual([0, 64, 1, 0, 255, 9, 100, 0]);
    expect(runAt(runs, 2, 0)).toBe(0);
    expect(runAt(runs, 4, 0.5)).toBe(-1);
    expect(runAt(runs, 4.8, 0.5)).toBe(1);
  });
  it("tell which bar lies under a point: the narrowest of those drawn over each other", () => {
    const { lines } = layOut(scene(1), ALL);
    const runs = (x0: number, x1: number, item: number) =>
      ({
        length: 1,
        x0: Float32Array.of(x0),
        x1: Float32Array.of(x1),
        item: Uint32Array.of(item),
        count: Uint32Array.of(1),
      }) as Runs;
    const known: Record<number, Runs> = { 0: runs(10, 90, 5), 2: runs(40, 44, 6) }; // a bar, and an init over it
    const tiles = {
      peek: (zoom: number, place: number, row: number) =>
        zoom === 1 && place === 0 ? known[row] : undefined,
    } as Tiles;
    const view = { start: 0, nsPerPixel: 2 };
    const y = lines[1].y + 5;
    expect(barAt(lines, tiles, view, 42, y)).toMatchObject({ row: 2, item: 6 });
    expect(barAt(lines, tiles, view, 60, y)).toMatchObject({ row: 0, item: 5 });
    expect(barAt(lines, tiles, view, 95, y)).toBeUndefined();
    expect(barAt(lines, tiles, view, 60, lines[2].y + 5)).toBeUndefined(); // a line of bandwidth has no bars
    expect(barAt(lines, tiles, view, 60, 1e6)).toBeUndefined();
  });
  it("cover a window", () => {
    expect(tilesOf(0, 511, 0)).toEqual([0, 0]);
    expect(tilesOf(-1, 1024, 1)).toEqual([-1, 1]);
  });
  it("are asked for by ranges of rows", () => {
    expect(ranges([1, 2, 3, 7, 9, 10])).toBe("1-3,7,9-10");
  });
});

describe("lines", () => {
  const places = rowPlaces(layOut(scene(2), { ...ALL, flipped: new Set(["r0/c0/t1"]) }).lines);
  const view = { start: 0, nsPerPixel: 1 };
  it("lead from a child straight to its parent", () => {
    const link = parentLink(
      view,
      places,
      { row: 3, item: 0, start_ns: 50, end_ns: 60 },
      { row: 0, item: 0, start_ns: 10, end_ns: 100 },
    );
    expect(link?.x0).toBe(50);
    expect(link?.x1).toBe(50);
    expect(link && link.y1 < link.y0).toBe(true);
    expect(
      parentLink(
        view,
        places,
        { row: 99, item: 0, start_ns: 1, end_ns: 2 },
        { row: 0, item: 0, start_ns: 1, end_ns: 2 },
      ),
    ).toBeUndefined();
  });
  it("join an instance from rank to rank, in the order of the page", () => {
    const links = instanceLinks(view, places, [
      { row: 6, item: 0, start_ns: 30, end_ns: 40 },
      { row: 0, item: 0, start_ns: 10, end_ns: 40 },
    ]);
    expect(links.length).toBe(1);
    expect([links[0].x0, links[0].x1]).toEqual([10, 30]);
  });
});

describe("text", () => {
  it("says times and sizes as people do", () => {
    expect(duration(1234567)).toBe("1.23 ms");
    expect(duration(999)).toBe("999 ns");
    expect(duration(50_000)).toBe("50 µs");
    expect(duration(2.5e9)).toBe("2.5 s");
    expect(size(1 << 20)).toBe("1M");
    expect(size(1000)).toBe("1000");
  });
  it("has ticks at round numbers", () => {
    expect(tickStep(1e6)).toBe(2e8);
    expect(tickLabel(2e8, 2e8)).toBe("200 ms");
    expect(tickLabel(1_500_000, 500_000)).toBe("1.5 ms");
  });
  it("cuts names that do not fit", () => {
    expect(fitted("AllReduce", 100, (text) => text.length * 6)).toBe("AllReduce");
    expect(fitted("AllReduce", 30, (text) => text.length * 6)).toBe("AllR…");
    expect(fitted("AllReduce", 8, (text) => text.length * 6)).toBe("");
  });
  it("keeps both ends of a long list, and says how much lies between", () => {
    expect(endsOf([1, 2, 3], 1, 2)).toEqual({ first: [1, 2, 3], between: 0, last: [] });
    expect(endsOf([1, 2, 3, 4, 5], 1, 2)).toEqual({ first: [1], between: 2, last: [4, 5] });
  });
  it("reads what people type into filters", () => {
    expect(parseRanks("0-2, 8")).toEqual([0, 1, 2, 8]);
    expect(parseRanks("x")).toBeUndefined();
    expect(parseSize("32M")).toBe(32 * 2 ** 20);
    expect(parseSize("1.5 KiB")).toBe(1536);
    expect(parseSize("a lot")).toBeUndefined();
  });
});

describe("line tracks", () => {
  it("have gaps where nothing is known", () => {
    expect(levelsOf(new Float32Array([NaN, 5, 5, 0, NaN, NaN, 0, 7]))).toEqual([
      [1, 3, 5],
      [3, 4, 0],
      [6, 7, 0],
      [7, 8, 7],
    ]);
    expect(levelsOf(new Float32Array([NaN]))).toEqual([]);
  });
  it("keep their area in fewer pixels", () => {
    expect([...squeezed(new Float32Array([0, 9, 1, NaN, NaN, NaN, 3, 2]), 0.5)]).toEqual([4.5, 1, NaN, 2.5]);
    const many = Float32Array.from({ length: 512 }, (_, n) => n % 97);
    const sum = (of: Float32Array) => of.reduce((so, one) => so + one, 0);
    for (const scale of [0.5, 0.625, 0.75, 1]) {
      expect(squeezed(many, scale).length).toBe(512 * scale);
      expect(sum(squeezed(many, scale)) / scale).toBeCloseTo(sum(many), 0);
    }
  });
  it("keep their height while the largest value in view changes little", () => {
    expect([9.1, 9.9, 10, 0.0101, 1.3e-7, 47].map(roundedUp)).toEqual(
      [10, 10, 10, 0.012, 1.5e-7, 50].map((value) => expect.closeTo(value, 12)),
    );
    for (let value = 1e-9; value < 1e9; value *= 1.07) {
      expect(roundedUp(value)).toBeGreaterThanOrEqual(value * (1 - 1e-9));
      expect(roundedUp(value)).toBeLessThanOrEqual(value * 1.34);
    }
  });
});

describe("names of bars", () => {
  const row = (...bars: [number, number][]): Runs =>
    ({
      length: bars.length,
      x0: bars.map(([x0]) => x0),
      x1: bars.map(([, x1]) => x1),
      count: bars.map(() => 1),
    }) as unknown as Runs;
  const room = (...rows: Runs[]) =>
    namesOf(rows, 30).map(({ runs, n, from, to }) => [rows.indexOf(runs), n, from, to]);
  it("need room", () => {
    expect(room(row([0, 29], [40, 70]))).toEqual([[0, 1, 40, 70]]);
    expect(room(row([0, 20]))).toEqual([]);
  });
  it("stand where no row above covers them", () => {
    expect(room(row([0, 100]), row([0, 5], [60, 200]))).toEqual([
      [0, 0, 5, 60],
      [1, 1, 60, 200],
    ]);
    expect(room(row([0, 100]), row([0, 40]), row([20, 75]))).toEqual([[2, 0, 20, 75]]); // 75 to 100 is too little
    expect(room(row([0, 100]), row([-50, 300]))).toEqual([[1, 0, -50, 300]]);
  });
});

describe("lines between bars", () => {
  const places = rowPlaces(layOut(scene(3), ALL).lines);
  const [top, middle, bottom] = [0, 6, 12]; // rows of operations of three ranks
  const bar = (row: number, start_ns: number, length_ns = 50) => ({
    row,
    item: 0,
    start_ns,
    end_ns: start_ns + length_ns,
  });
  const instance = (number: number, ...starts: number[]) =>
    [top, middle, bottom]
      .slice(0, starts.length)
      .map((row, n) => ({ instance: number, ...bar(row, starts[n]) }));
  it("keep apart at both ends, the first before the others", () => {
    const link = (x0: number, x1: number, y0 = 0) => [{ x0, x1, y0, y1: y0 + 50 }];
    expect(
      keptApart([link(0, 0), link(9, 30), link(30, 9), link(10, 10), link(5, 5, 90), link(-10, -10)], 10),
    ).toEqual([true, false, false, true, true, true]);
    // A group is drawn whole or not at all.
    expect(keptApart([link(0, 0), [...link(40, 40, 90), ...link(5, 5)], link(41, 41, 90)], 10)).toEqual([
      true,
      false,
      true,
    ]);
  });
  it("are thinned out when the view is wide, and all there when it is near", () => {
    const instances = Array.from({ length: 100 }, (_, n) =>
      instance(n, n * 1000, n * 1000 + 10, n * 1000 + (n === 50 ? 500 : 20)),
    ).flat();
    const marks = { bars: 300, parents: [], instances, states: [] };
    const near = joinedBy(marks, places, 10);
    expect([near.instances.length, near.ofInstances]).toEqual([100, 100]);
    const wide = joinedBy(marks, places, 1000);
    expect(wide.ofInstances).toBe(100);
    expect(wide.instances.length).toBeGreaterThan(3);
    expect(wide.instances.length).toBeLessThanOrEqual(100_000 / 1000 / 10);
    const xs = wide.instances.map((members) => members[0].start_ns / 1000).sort((a, b) => a - b);
    for (let n = 1; n < xs.length; n++) expect(xs[n] - xs[n - 1]).toBeGreaterThanOrEqual(10);
    expect(wide.instances[0][0].start_ns).toBe(50_000); // the largest skew is among them
    expect(joinedBy(marks, places, 1000)).toBe(wide); // moving costs nothing
  });
  it("lead to parents where there is room, of longer bars first", () => {
    const call = bar(3, 0, 100_000);
    const parents = Array.from({ length: 50 }, (_, n) => ({
      child: bar(top, n * 1000, n === 7 ? 900 : 100),
      parent: call,
    }));
    const found = joinedBy(
      { bars: 51, parents, instances: [], states: [] },
      new Map([...places, [3, { y: 400, height: 10 }]]),
      1000,
    );
    expect(found.ofParents).toBe(50);
    expect(found.parents.length).toBeLessThan(6);
    expect(found.parents[0].child.start_ns).toBe(7000);
  });
});

describe("fields of a bar", () => {
  it("begin with what people look for, and leave out what is empty", () => {
    const fields = ["instance_skew_ns", "count", "reason", "wait_ns", "rank", "duration_ns"].map((name) => ({
      name,
      value: name === "reason" ? "" : 1,
      unit: "",
      source: "",
    }));
    expect(inOrder(fields as never).map((field) => field.name)).toEqual([
      "duration_ns",
      "wait_ns",
      "rank",
      "instance_skew_ns",
      "count",
    ]);
  });
});
