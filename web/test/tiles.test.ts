import { describe, expect, it } from "vitest";
import type { Runs } from "../src/generated";
import { barAt } from "../src/hit";
import { layOut } from "../src/layout";
import { ranges } from "../src/source";
import type { Tiles } from "../src/tiles";
import { decodeTile, runAt, tilesOf } from "../src/tiles";
import { ALL, scene } from "./scenes";

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
