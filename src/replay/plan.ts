// What is replayed: which jobs come when, and what waits at the beginning. Pure arithmetic over what was recorded.
import type { LoadRow, RecordedLoad, RecordedPartition } from "../db/engine.ts";

/** The row of all partitions that have none of their own. */
export const OTHERS = "00000000-0000-0000-0000-000000000000";

/** Jobs of a second come at so many moments of it. More would take longer, and tell no more of waits. */
const MOMENTS_OF_A_SECOND = 10;

export interface Plan {
  /** Milliseconds since 1970, as all times here. */
  readonly from: number;
  readonly until: number;
  readonly partitions: readonly PlannedPartition[];
  /** By time. */
  readonly jobs: readonly PlannedJob[];
  /** Jobs that came in the whole time that was asked for. */
  readonly recorded: number;
  /** Jobs that waited at the beginning, and how many of them are replayed. */
  readonly waited: number;
  readonly waitedReplayed: number;
}

export interface PlannedPartition extends RecordedPartition {
  /** Whether it stands for all partitions that have no row of their own. */
  readonly isOthers: boolean;
  /** How many jobs came. */
  readonly came: number;
  /** How many were admitted in fact. */
  readonly admitted: number;
  /** Of the jobs that waited at the beginning: those that are replayed, and those that only count as waiting. */
  readonly replayedBacklog: number;
  readonly otherBacklog: number;
  /** The mean length of its jobs' runs in seconds; null: none has ended. */
  readonly meanRun: number | null;
}

export interface PlannedJob {
  readonly at: number;
  /** The place of its partition. */
  readonly partition: number;
  readonly cost: number;
}

/** Shortens the time that is replayed, so that it has at most `most` jobs. The newest minutes stay. */
export function planOf(recorded: RecordedLoad, most: number): Plan {
  const until = Date.parse(recorded.now);
  const from = beginningOf(recorded, most);
  const partitions = partitionsOf(recorded, from, until, most);
  const places = new Map(partitions.map(({ row }, place) => [row, place]));
  const jobs = recorded.load
    .flatMap((row) => jobsOf(row, places.get(row.row)))
    .filter(({ at }) => at >= from && at < until)
    .sort((a, b) => a.at - b.at);
  const waitedReplayed = sum(partitions.map((one) => one.replayedBacklog));
  const waited = waitedReplayed + sum(partitions.map((one) => one.otherBacklog));
  return { from, until, partitions, jobs, recorded: cameUntil(recorded.load, until), waited, waitedReplayed };
}

function beginningOf({ load, from, now }: RecordedLoad, most: number): number {
  const minutes = new Map<number, number>();
  for (const row of load) {
    const minute = Date.parse(row.minute);
    // jobs that waited before are replayed as well
    minutes.set(minute, (minutes.get(minute) ?? 0) + Math.max(sum(row.came), row.admitted));
  }
  const first = Math.min(...minutes.keys(), Date.parse(now));
  let left = most;
  const newestFirst = [...minutes].filter(([minute]) => minute < Date.parse(now)).sort(([a], [b]) => b - a);
  for (const [place, [minute, came]] of newestFirst.entries()) {
    left -= came;
    if (left < 0) return place === 0 ? minute : (newestFirst[place - 1]?.[0] ?? minute);
  }
  return Math.max(first, Date.parse(from));
}

function partitionsOf(
  { partitions, load, definition }: RecordedLoad,
  from: number,
  until: number,
  most: number,
): PlannedPartition[] {
  const rows = Map.groupBy(
    load.filter(({ minute }) => Date.parse(minute) >= from),
    ({ row }) => row,
  );
  const all: RecordedPartition[] = [...partitions];
  const others = rows.get(OTHERS);
  if (others) all.push(asOthers(definition.gates, partitions));
  const counted = all.map((one) => ({ one, ...countsOf(rows.get(one.row) ?? [], until) }));
  const backlogs = counted.map(({ one, came, later, admitted }) =>
    one.row === OTHERS ? 0 : Math.max(0, one.waiting - later - came + admitted),
  );
  const level = levelOf(backlogs, most);
  return counted.map(({ one, came, admitted, meanRun }, place) => {
    const backlog = backlogs[place] as number;
    const replayedBacklog = Math.min(backlog, level);
    const otherBacklog = backlog - replayedBacklog;
    return { ...one, isOthers: one.row === OTHERS, came, admitted, meanRun, replayedBacklog, otherBacklog };
  });
}

/** How many jobs of each backlog are replayed at most, so that they are not more than `most` together. */
function levelOf(backlogs: readonly number[], most: number): number {
  let left = most;
  for (const [place, backlog] of backlogs.toSorted((a, b) => a - b).entries()) {
    const level = Math.floor(left / (backlogs.length - place));
    if (backlog > level) return level;
    left -= backlog;
  }
  return most;
}

/** All partitions without a row of their own: only gates over the whole policy limit them together. */
function asOthers(
  gates: RecordedLoad["definition"]["gates"],
  partitions: readonly RecordedPartition[],
): RecordedPartition {
  const overAll = gates.filter(({ scope }) => scope === "policy").map(({ name }) => name);
  const limits = partitions[0]?.limits.filter(({ gate }) => overAll.includes(gate)) ?? [];
  return { row: OTHERS, key: "(others)", shard: "default", context: {}, weight: 1, limits, waiting: 0 };
}

function countsOf(rows: readonly LoadRow[], until: number) {
  const came = cameUntil(rows, until);
  const ended = sum(rows.map((row) => row.ended));
  return {
    came,
    later: sum(rows.flatMap((row) => row.came)) - came,
    admitted: sum(rows.map((row) => row.admitted)),
    meanRun: ended > 0 ? sum(rows.map((row) => row.runSeconds)) / ended : null,
  };
}

function cameUntil(rows: readonly LoadRow[], until: number): number {
  return sum(
    rows.flatMap(({ minute, seconds, came }) =>
      came.filter((_, n) => Date.parse(minute) + (seconds[n] as number) * 1000 < until),
    ),
  );
}

/** The jobs of a second are spread over it. */
function jobsOf({ minute, seconds, came, cost }: LoadRow, partition: number | undefined): PlannedJob[] {
  if (partition === undefined) return [];
  const each = cost / Math.max(1, sum(came));
  return seconds.flatMap((second, n) => {
    const jobs = came[n] as number;
    return Array.from({ length: jobs }, (_, place) => {
      const moment = Math.floor((place / jobs) * MOMENTS_OF_A_SECOND) / MOMENTS_OF_A_SECOND;
      return { at: Date.parse(minute) + (second + moment) * 1000, partition, cost: each };
    });
  });
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
