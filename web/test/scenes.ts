// Scenes for tests.
import type { Lane, Scene } from "../src/types";

export function lane(key: string, level: string, given: Partial<Lane> = {}): Lane {
  return { key, level, title: key, note: "", state: "", ids: {}, tracks: [], children: [], ...given };
}

export function scene(ranks: number): Scene {
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

export const ALL = { toggledLanes: new Set<string>(), hidden: new Set<string>() };
