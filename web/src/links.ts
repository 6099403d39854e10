// Lines between bars: where they run, and which of them are drawn.
import type { RowPlace } from "./layout";
import type { Marks, Place } from "./types";
import { type View, toX } from "./view";

export interface Places {
  get(row: number): RowPlace | undefined;
}

/** A line of an overlay, in pixels of the lanes. */
export interface Link {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** From the start of a bar up to its parent. */
export function parentLink(view: View, places: Places, child: Place, parent: Place): Link | undefined {
  const from = places.get(child.row);
  const to = places.get(parent.row);
  if (!from || !to || from.y === to.y) return undefined;
  const x0 = toX(view, child.start_ns);
  // Inside the parent where it can be: a straight line down from it.
  const x1 = Math.min(Math.max(x0, toX(view, parent.start_ns)), toX(view, parent.end_ns));
  const down = from.y > to.y;
  return { x0, y0: down ? from.y : from.y + from.height, x1, y1: down ? to.y + to.height : to.y };
}

/** Lines that join an instance from rank to rank, in the order of the page. */
export function instanceLinks(view: View, places: Places, members: Place[]): Link[] {
  const shown = members
    .map((member) => ({ member, at: places.get(member.row) }))
    .filter((one): one is { member: Place; at: RowPlace } => one.at !== undefined)
    .sort((a, b) => a.at.y - b.at.y);
  const links: Link[] = [];
  for (let n = 1; n < shown.length; n++) {
    const [above, below] = [shown[n - 1], shown[n]];
    if (above.at.y === below.at.y) continue;
    links.push({
      x0: toX(view, above.member.start_ns),
      y0: above.at.y + above.at.height / 2,
      x1: toX(view, below.member.start_ns),
      y1: below.at.y + below.at.height / 2,
    });
  }
  return links;
}

/**
 * Of groups of lines, the most important first, those that keep apart from all before them: between the same heights no two
 * begin or end closer than so many pixels.
 */
export function keptApart(groups: Link[][], apart: number): boolean[] {
  const taken = new Map<string, Map<number, number>>(); // by side of a gap between lanes: x by stretch of so many pixels
  const near = (side: string) => {
    const known = taken.get(side) ?? new Map<number, number>();
    taken.set(side, known);
    return known;
  };
  return groups.map((links) => {
    const ends = links.flatMap(({ x0, y0, x1, y1 }): [Map<number, number>, number][] => [
      [near(`${y0}>${y1}`), x0],
      [near(`${y0}<${y1}`), x1],
    ]);
    const free = ends.every(([side, x]) => {
      const at = Math.floor(x / apart);
      return [at - 1, at, at + 1].every((one) => Math.abs((side.get(one) ?? Infinity) - x) >= apart);
    });
    if (free) for (const [side, x] of ends) side.set(Math.floor(x / apart), x);
    return free;
  });
}

/** The lines that are drawn, of all that could be. */
export interface Joined {
  parents: { child: Place; parent: Place }[];
  instances: Place[][];
  ofParents: number;
  ofInstances: number;
}

const APART = 14; // pixels: closer lines are a hatch that hides the bars and can be followed nowhere
const drawn = new WeakMap<Marks, { joined: Joined; places: Places; nsPerPixel: number }>();

/** What is joined by lines at this zoom: longer bars before shorter ones, larger skews before smaller ones. */
export function joinedBy(marks: Marks, places: Places, nsPerPixel: number): Joined {
  const known = drawn.get(marks);
  if (known && known.places === places && known.nsPerPixel === nsPerPixel) return known.joined;
  const view = { start: 0, nsPerPixel }; // which are drawn does not depend on where the view is
  const parents = marks.parents
    .map((one) => ({ one, link: parentLink(view, places, one.child, one.parent) }))
    .filter((pair): pair is { one: { child: Place; parent: Place }; link: Link } => pair.link !== undefined)
    .sort((a, b) => b.one.child.end_ns - b.one.child.start_ns - (a.one.child.end_ns - a.one.child.start_ns));
  const byInstance = new Map<number, Place[]>();
  for (const one of marks.instances) {
    const members = byInstance.get(one.instance);
    if (members) members.push(one);
    else byInstance.set(one.instance, [one]);
  }
  const instances = [...byInstance.values()]
    .map((members) => ({ members, links: instanceLinks(view, places, members), skew: skewOf(members) }))
    .filter(({ links }) => links.length > 0)
    .sort((a, b) => b.skew - a.skew);
  const parentsKept = keptApart(
    parents.map(({ link }) => [link]),
    APART,
  );
  const instancesKept = keptApart(
    instances.map(({ links }) => links),
    APART,
  );
  const joined = {
    parents: parents.filter((_, n) => parentsKept[n]).map(({ one }) => one),
    ofParents: parents.length,
    instances: instances.filter((_, n) => instancesKept[n]).map(({ members }) => members),
    ofInstances: instances.length,
  };
  drawn.set(marks, { joined, places, nsPerPixel });
  return joined;
}

function skewOf(members: Place[]): number {
  let [first, last] = [Infinity, -Infinity];
  for (const { start_ns } of members) {
    first = Math.min(first, start_ns);
    last = Math.max(last, start_ns);
  }
  return last - first;
}
