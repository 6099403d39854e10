import { describe, expect, it } from "vitest";
import {
  barRows,
  lanesToUnfold,
  layOut,
  lineAt,
  operationRows,
  rowNames,
  rowPlaces,
  showsOperations,
} from "../src/layout";
import { inventory } from "../src/menu";
import type { Lane } from "../src/types";
import { ALL, lane, scene } from "./scenes";

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
  it("knows that a folded communicator shows operations, and a folded thread does not", () => {
    const { lines } = layOut(scene(2), { ...ALL, toggledLanes: new Set(["r0/c0"]) });
    expect(lines.filter(showsOperations).map((line) => line.title)).toEqual(["r0", "r1"]);
    expect(lines.find((line) => line.title === "r0")?.folded).toBe(true);
  });
  it("unfolds what a row needs, hides kinds, and filters ranks and communicators", () => {
    const given = scene(2);
    const { paths } = rowNames(given.lanes);
    const toggledLanes = new Set(lanesToUnfold(given, ALL, paths.get(4) as Lane[]));
    expect([...toggledLanes]).toEqual(["r0/c0/t1", "r0/c0/t1/p"]);
    const open = layOut(given, { ...ALL, toggledLanes }).lines;
    expect(open.find((line) => line.kind === "ProxyStep")?.strips).toEqual([[4], [5]]);
    const hidden = layOut(given, { toggledLanes, hidden: new Set(["ProxyStep", "bandwidth"]) }).lines;
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
    const { lines } = layOut(given, { ...ALL, toggledLanes: new Set(["h/machine"]) });
    expect(lines.slice(-3).map((line) => [line.title, line.note, line.kind, line.strips])).toEqual([
      ["GPU 3", "", "", []],
      ["clock", "MHz", "counter", [[100]]],
      ["power", "W", "counter", [[101]]],
    ]);
    expect(barRows(lines)).not.toContain(100);
    expect(rowPlaces(lines).has(100)).toBe(false);
    expect(inventory(given.lanes).kinds).toContain("counter");
    const hidden = layOut(given, {
      toggledLanes: new Set(["h/machine"]),
      hidden: new Set(["counter"]),
    }).lines;
    expect(hidden.some((line) => line.kind === "counter")).toBe(false);
  });
  it("shows many ranks as one line each, with all their operations", () => {
    const lines = layOut(scene(64), ALL).lines;
    expect(lines.length).toBeLessThan(64 * 4 + 2);
  });
  it("says how many rows a folded lane does not show", () => {
    const host = layOut(scene(200), { ...ALL, toggledLanes: new Set(["h"]) }).lines[0];
    expect(host.strips[0].length).toBe(256);
    expect(host.note).toBe("the first 256 of 400 rows");
    expect(layOut(scene(100), { ...ALL, toggledLanes: new Set(["h"]) }).lines[0].note).toBe("");
  });
  it("knows rows of bars and rows of operations, folded or not", () => {
    const { lines } = layOut(scene(2), ALL);
    expect(barRows(lines)).toEqual([0, 1, 2, 6, 7, 8]); // not those of folded threads
    expect(operationRows(lines)).toEqual([0, 1, 2, 6, 7, 8]);
    const folded = layOut(scene(2), { ...ALL, toggledLanes: new Set(["h"]) }).lines;
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
