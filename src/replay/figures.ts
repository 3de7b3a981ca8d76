// What a replay shows of a partition.
import type { Replayed } from "../index.ts";
import type { Plan } from "./plan.ts";
import type { Ran } from "./simulate.ts";

interface Figures {
  readonly started: number;
  readonly waiting: number;
  readonly waits: readonly number[];
}

/** One replay's figures for each partition. A job that still waits has waited until the end. */
export function figuresOf(ran: readonly Ran[], { partitions, until }: Plan): readonly Figures[] {
  const byPartition = Map.groupBy(ran, ({ partition }) => partition);
  return partitions.map(({ otherBacklog }, place) => {
    const jobs = byPartition.get(place) ?? [];
    const started = jobs.filter(({ admittedAt }) => admittedAt !== null).length;
    const waits = jobs.map(({ at, admittedAt }) => Math.max(0, (admittedAt ?? until) - at) / 1000);
    return { started, waiting: jobs.length - started + otherBacklog, waits: waits.sort((a, b) => a - b) };
  });
}

/** What several replays of the same partition say together: each figure from the least to the most. */
export function spanOf(replays: readonly Figures[]): Replayed {
  const span = (figure: (one: Figures) => number) => {
    const values = replays.map(figure);
    return { from: Math.min(...values), to: Math.max(...values) };
  };
  return {
    started: span(({ started }) => started),
    waiting: span(({ waiting }) => waiting),
    medianWaitSeconds: span(({ waits }) => quantile(waits, 0.5)),
    p95WaitSeconds: span(({ waits }) => quantile(waits, 0.95)),
    longestWaitSeconds: span(({ waits }) => waits.at(-1) ?? 0),
  };
}

/** The least wait that so large a share of the jobs does not exceed. */
function quantile(ascending: readonly number[], share: number): number {
  return ascending[Math.max(0, Math.ceil(share * ascending.length) - 1)] ?? 0;
}
