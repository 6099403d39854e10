import { describe, expect, it } from "vitest";
import { layOut, rowPlaces } from "../src/layout";
import { instanceLinks, parentLink, selectSpaced, visibleLinks } from "../src/links";
import { ALL, scene } from "./scenes";

describe("lines", () => {
  const places = rowPlaces(layOut(scene(2), { ...ALL, toggledLanes: new Set(["r0/c0/t1"]) }).lines);
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
      selectSpaced([link(0, 0), link(9, 30), link(30, 9), link(10, 10), link(5, 5, 90), link(-10, -10)], 10),
    ).toEqual([true, false, false, true, true, true]);
    // A group is drawn whole or not at all.
    expect(selectSpaced([link(0, 0), [...link(40, 40, 90), ...link(5, 5)], link(41, 41, 90)], 10)).toEqual([
      true,
      false,
      true,
    ]);
  });
  it("are left_out out when the view is wide, and all there when it is near", () => {
    const instances = Array.from({ length: 100 }, (_, n) =>
      instance(n, n * 1000, n * 1000 + 10, n * 1000 + (n === 50 ? 500 : 20)),
    ).flat();
    const marks = { bars: 300, parents: [], instances, states: [] };
    const near = visibleLinks(marks, places, 10);
    expect([near.instances.length, near.ofInstances]).toEqual([100, 100]);
    const wide = visibleLinks(marks, places, 1000);
    expect(wide.ofInstances).toBe(100);
    expect(wide.instances.length).toBeGreaterThan(3);
    expect(wide.instances.length).toBeLessThanOrEqual(100_000 / 1000 / 10);
    const xs = wide.instances.map((members) => members[0].start_ns / 1000).sort((a, b) => a - b);
    for (let n = 1; n < xs.length; n++) expect(xs[n] - xs[n - 1]).toBeGreaterThanOrEqual(10);
    expect(wide.instances[0][0].start_ns).toBe(50_000); // the largest skew is among them
    expect(visibleLinks(marks, places, 1000)).toBe(wide); // moving costs nothing
  });
  it("lead to parents where there is room, of longer bars first", () => {
    const call = bar(3, 0, 100_000);
    const parents = Array.from({ length: 50 }, (_, n) => ({
      child: bar(top, n * 1000, n === 7 ? 900 : 100),
      parent: call,
    }));
    const found = visibleLinks(
      { bars: 51, parents, instances: [], states: [] },
      new Map([...places, [3, { y: 400, height: 10 }]]),
      1000,
    );
    expect(found.ofParents).toBe(50);
    expect(found.parents.length).toBeLessThan(6);
    expect(found.parents[0].child.start_ns).toBe(7000);
  });
});
