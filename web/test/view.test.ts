import { describe, expect, it } from "vitest";
import { decodeAddress, encodeAddress } from "../src/address";
import { parseMoment } from "../src/search";
import { clampView, fitView, pan, toTime, toX, zoomAt, zoomOf } from "../src/view";

describe("view", () => {
  it("keeps the moment under the mouse while zooming", () => {
    const view = { start: 1000, nsPerPixel: 8 };
    const near = zoomAt(view, 300, 0.5, 1e9);
    expect(toTime(near, 300)).toBeCloseTo(toTime(view, 300));
    expect(near.nsPerPixel).toBe(4);
  });
  it("fits a stretch and keeps it on the page", () => {
    const view = fitView(1000, 2000, 500, 0);
    expect(toX(view, 1000)).toBeCloseTo(0);
    expect(toX(view, 2000)).toBeCloseTo(500);
    expect(clampView(pan(view, 1e9), 3000, 500).start).toBeLessThan(3000);
    expect(toTime(clampView(pan(view, -1e9), 3000, 500), 500)).toBeGreaterThan(0);
  });
  it("reads the time of a jump", () => {
    expect(parseMoment("@1.5s")).toBe(1.5e9);
    expect(parseMoment("@ 250ms")).toBe(250e6);
    expect(parseMoment("@3")).toBe(3e9);
    expect(parseMoment("@3 parsecs")).toBeUndefined();
    expect(parseMoment("allreduce")).toBeUndefined();
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
      toggledLanes: ["h0/p0.0/c0", "h0/p1.1/c0/t7"],
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
    expect(decodeAddress("").toggledLanes).toEqual([]);
    expect(decodeAddress("#ranks=").ranks).toBeUndefined();
  });
});
