// The statistics of ncclscope/web/statistics.py, for a page that has no server. A test compares their
// answers.
import { PERCENTS, SOURCE_GRADES } from "./generated";
import type { Group } from "./types";

/** What statistics need of an operation; -1: it is not known. */
export interface Operation {
  communicator: number; // row of the model
  communicatorName: string;
  function: string;
  source: number;
  size: number;
  duration: number;
  wait: number;
  busBytes: number; // -1: it does not count for bandwidth
}

/** Statistics by communicator and function; the groups with the most time come first. */
export function groupStatistics(operations: Operation[]): Group[] {
  const byGroup = new Map<string, Operation[]>();
  for (const operation of operations) {
    const key = `${operation.communicator}/${operation.function}`;
    const group = byGroup.get(key);
    if (group) group.push(operation);
    else byGroup.set(key, [operation]);
  }
  const groups = [...byGroup.values()].sort((a, b) => a[0].communicator - b[0].communicator);
  return groups.map(statisticsOf).sort(byTime);
}

function byTime(a: Group, b: Group): number {
  return b.time_ns - a.time_ns || compare(a.communicator, b.communicator) || compare(a.function, b.function);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function statisticsOf(operations: Operation[]): Group {
  const timed = operations.filter(({ duration }) => duration >= 0);
  const waited = operations.filter(({ wait }) => wait >= 0);
  const counted = operations.filter(({ busBytes, duration }) => busBytes >= 0 && duration >= 0);
  const waitedOf = sum(waited.map(({ duration }) => duration));
  const countedNs = sum(counted.map(({ duration }) => duration));
  const [median, p99] = percentiles(bestDurations(timed));
  return {
    communicator: operations[0].communicatorName,
    function: operations[0].function,
    operations: operations.length,
    timed: timed.length,
    bytes: sum(operations.map(({ size }) => Math.max(size, 0))),
    time_ns: sum(timed.map(({ duration }) => duration)),
    median_ns: median,
    p99_ns: p99,
    busbw_gbs: countedNs > 0 ? sum(counted.map(({ busBytes }) => busBytes)) / countedNs : null,
    wait_share: waitedOf > 0 ? sum(waited.map(({ wait }) => wait)) / waitedOf : null,
  };
}

/** Durations from the best kind of clock that timed any of the operations. */
function bestDurations(timed: Operation[]): number[] {
  const best = Math.min(...new Set(timed.map(({ source }) => SOURCE_GRADES[source])));
  return timed.filter(({ source }) => SOURCE_GRADES[source] === best).map(({ duration }) => duration);
}

/** For each of PERCENTS the smallest value that this percentage of all do not exceed; null: no values. */
export function percentiles(values: number[]): (number | null)[] {
  const sorted = [...values].sort((a, b) => a - b);
  return PERCENTS.map((percent) =>
    sorted.length ? sorted[Math.max(Math.ceil((percent * sorted.length) / 100) - 1, 0)] : null,
  );
}
