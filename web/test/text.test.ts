import { describe, expect, it } from "vitest";
import { firstAndLast, sortFields } from "../src/bar_info";
import { parseRanks, parseSize } from "../src/menu";
import { duration, fitText, size, tickLabel, tickStep } from "../src/text";

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
    expect(fitText("AllReduce", 100, (text) => text.length * 6)).toBe("AllReduce");
    expect(fitText("AllReduce", 30, (text) => text.length * 6)).toBe("AllR…");
    expect(fitText("AllReduce", 8, (text) => text.length * 6)).toBe("");
  });
  it("keeps both ends of a long list, and says how much lies between", () => {
    expect(firstAndLast([1, 2, 3], 1, 2)).toEqual({ first: [1, 2, 3], between: 0, last: [] });
    expect(firstAndLast([1, 2, 3, 4, 5], 1, 2)).toEqual({ first: [1], between: 2, last: [4, 5] });
  });
  it("reads what people type into filters", () => {
    expect(parseRanks("0-2, 8")).toEqual([0, 1, 2, 8]);
    expect(parseRanks("x")).toBeUndefined();
    expect(parseSize("32M")).toBe(32 * 2 ** 20);
    expect(parseSize("1.5 KiB")).toBe(1536);
    expect(parseSize("a lot")).toBeUndefined();
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
    expect(sortFields(fields as never).map((field) => field.name)).toEqual([
      "duration_ns",
      "wait_ns",
      "rank",
      "instance_skew_ns",
      "count",
    ]);
  });
});
