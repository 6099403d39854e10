import { describe, expect, it } from "vitest";
import { barNames } from "../src/bar_names";
import type { Runs } from "../src/generated";
import { roundUp, squeeze, stepsOf } from "../src/line_tracks";

describe("line tracks", () => {
  it("have gaps where nothing is known", () => {
    expect(stepsOf(new Float32Array([NaN, 5, 5, 0, NaN, NaN, 0, 7]))).toEqual([
      [1, 3, 5],
      [3, 4, 0],
      [6, 7, 0],
      [7, 8, 7],
    ]);
    expect(stepsOf(new Float32Array([NaN]))).toEqual([]);
  });
  it("keep their area in fewer pixels", () => {
    expect([...squeeze(new Float32Array([0, 9, 1, NaN, NaN, NaN, 3, 2]), 0.5)]).toEqual([4.5, 1, NaN, 2.5]);
    const many = Float32Array.from({ length: 512 }, (_, n) => n % 97);
    const sum = (of: Float32Array) => of.reduce((so, one) => so + one, 0);
    for (const scale of [0.5, 0.625, 0.75, 1]) {
      expect(squeeze(many, scale).length).toBe(512 * scale);
      expect(sum(squeeze(many, scale)) / scale).toBeCloseTo(sum(many), 0);
    }
  });
  it("keep their height while the largest value in view changes little", () => {
    expect([9.1, 9.9, 10, 0.0101, 1.3e-7, 47].map(roundUp)).toEqual(
      [10, 10, 10, 0.012, 1.5e-7, 50].map((value) => expect.closeTo(value, 12)),
    );
    for (let value = 1e-9; value < 1e9; value *= 1.07) {
      expect(roundUp(value)).toBeGreaterThanOrEqual(value * (1 - 1e-9));
      expect(roundUp(value)).toBeLessThanOrEqual(value * 1.34);
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
    barNames(rows, 30).map(({ runs, n, from, to }) => [rows.indexOf(runs), n, from, to]);
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
