// Lines between bars: where they run, and which of them are drawn.
import type { RowPlace } from "./layout";
import type { Marks, Place } from "./types";
import { toX, type View } from "./view";

export interface Places {
  get(row: number): RowPlace | undefined;
}

/** A line between two bars, in pixels of the lanes. */
export interface Link {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** The line from the start of a bar to its parent. */
export function parentLink(view: View, places: Places, child: Place, parent: Place): Link | undefined {
  const from = places.get(child.row);
  const to = places.get(parent.row);
  if (!from || !to || from.y === to.y) return undefined;
  const x0 = toX(view, child.start_ns);
  // It ends inside the parent: where the child begins, the line is vertical.
  const x1 = Math.min(Math.max(x0, toX(view, parent.start_ns)), toX(view, parent.end_ns));
  const down = from.y > to.y;
  return { x0, y0: down ? from.y : from.y + from.height, x1, y1: down ? to.y + to.height : to.y };
}

/** The lines of an instance from rank to rank, from top to bottom. */
export function instanceLinks(view: View, places: Places, members: Place[]): Link[] {
  const drawn = members
    .map((member) => ({ member, at: places.get(member.row) }))
    .filter((one): one is { member: Place; at: RowPlace } => one.at !== undefined)
    .sort((a, b) => a.at.y - b.at.y);
  const links: Link[] = [];
  for (let n = 1; n < drawn.length; n++) {
    const [above, below] = [drawn[n - 1], drawn[n]];
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

/** Which groups of lines are drawn. The most important come first; each keeps at least `apart` pixels from
 * all before it: between the same heights no two lines begin or end closer than that.
 */
export function selectSpaced(groups: Link[][], apart: number): boolean[] {
  // By the upper or lower side of a gap between lanes: x of the lines' ends by bucket of `apart` pixels.
  const sides = new Map<string, Map<number, number>>();
  const endsAt = (side: string) => {
    const ends = sides.get(side) ?? new Map<number, number>();
    sides.set(side, ends);
    return ends;
  };
  return groups.map((links) => {
    const ends = links.flatMap(({ x0, y0, x1, y1 }): [Map<number, number>, number][] => [
      [endsAt(`${y0}>${y1}`), x0],
      [endsAt(`${y0}<${y1}`), x1],
    ]);
    const isFree = ends.every(([side, x]) => {
      const bucket = Math.floor(x / apart);
      return [bucket - 1, bucket, bucket + 1].every(
        (near) => Math.abs((side.get(near) ?? Infinity) - x) >= apart,
      );
    });
    if (isFree) for (const [side, x] of ends) side.set(Math.floor(x / apart), x);
    return isFree;
  });
}

interface ParentPair {
  child: Place;
  parent: Place;
}

/** The lines that are drawn, and how many there could be. */
export interface VisibleLinks {
  parents: ParentPair[];
  instances: Place[][];
  ofParents: number;
  ofInstances: number;
}

const APART = 14; // pixels; closer lines hide the bars and cannot be followed
const cache = new WeakMap<Marks, { links: VisibleLinks; places: Places; nsPerPixel: number }>();

/** The lines that are drawn at this zoom: of long bars before short ones, of large skews before small ones. */
export function visibleLinks(marks: Marks, places: Places, nsPerPixel: number): VisibleLinks {
  const cached = cache.get(marks);
  if (cached && cached.places === places && cached.nsPerPixel === nsPerPixel) return cached.links;
  const view = { start: 0, nsPerPixel }; // where the view is makes no difference
  const links = { ...visibleParents(marks, view, places), ...visibleInstances(marks, view, places) };
  cache.set(marks, { links, places, nsPerPixel });
  return links;
}

function visibleParents(marks: Marks, view: View, places: Places) {
  const parents = marks.parents
    .map((pair) => ({ pair, link: parentLink(view, places, pair.child, pair.parent) }))
    .filter((one): one is { pair: ParentPair; link: Link } => one.link !== undefined)
    .sort((a, b) => lengthOf(b.pair.child) - lengthOf(a.pair.child));
  const isDrawn = selectSpaced(
    parents.map(({ link }) => [link]),
    APART,
  );
  return {
    parents: parents.filter((_, n) => isDrawn[n]).map(({ pair }) => pair),
    ofParents: parents.length,
  };
}

function visibleInstances(marks: Marks, view: View, places: Places) {
  const byInstance = new Map<number, Place[]>();
  for (const member of marks.instances) {
    const members = byInstance.get(member.instance);
    if (members) members.push(member);
    else byInstance.set(member.instance, [member]);
  }
  const instances = [...byInstance.values()]
    .map((members) => ({ members, links: instanceLinks(view, places, members), skew: skewOf(members) }))
    .filter(({ links }) => links.length > 0)
    .sort((a, b) => b.skew - a.skew);
  const isDrawn = selectSpaced(
    instances.map(({ links }) => links),
    APART,
  );
  return {
    instances: instances.filter((_, n) => isDrawn[n]).map(({ members }) => members),
    ofInstances: instances.length,
  };
}

function lengthOf({ start_ns, end_ns }: Place): number {
  return end_ns - start_ns;
}

function skewOf(members: Place[]): number {
  let [first, last] = [Infinity, -Infinity];
  for (const { start_ns } of members) {
    first = Math.min(first, start_ns);
    last = Math.max(last, start_ns);
  }
  return last - first;
}
