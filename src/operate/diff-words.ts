// A diff in words, for the command and the pages.
import { grouped } from "../counted.ts";
import type { Diff, PartitionDiff, Replayed, Span } from "./diff.ts";

/** One line of a table: a partition under one of both limits. */
export interface DiffLine {
  readonly partition: string;
  readonly limits: "as it was" | "changed";
  readonly figures: Replayed;
}

/** Two lines for each partition that would differ. */
export function linesOf({ partition, before, after }: PartitionDiff): readonly DiffLine[] {
  const name = partition ?? "(others)";
  return [
    { partition: name, limits: "as it was", figures: before },
    { partition: name, limits: "changed", figures: after },
  ];
}

/** Whether it would have been different for a partition. */
export function differs({ before, after }: PartitionDiff): boolean {
  return JSON.stringify(before) !== JSON.stringify(after);
}

/** How near the replay of the unchanged limits is to what happened. */
export function trustIn({ partitions }: Diff): string {
  const sum = (each: (one: PartitionDiff) => number) => partitions.reduce((all, one) => all + each(one), 0);
  const started = {
    from: sum(({ before }) => before.started.from),
    to: sum(({ before }) => before.started.to),
  };
  return `As it was, ${inFigures(started)} start in the replay, and ${grouped(sum(({ admitted }) => admitted))} did in fact.`;
}

/** What its figures and names mean. */
export function meaningOf({ isInterval, partitions }: Diff): readonly string[] {
  const hasOthers = partitions.some(({ partition }) => partition === null);
  return [
    ...(isInterval ? ["Figures from one value to another depend on how long jobs run."] : []),
    ...(hasOthers
      ? ["Smaller partitions replay as one, and only past gates over the whole policy: (others)."]
      : []),
  ];
}

/** "12", or "12 to 15". */
export function inFigures({ from, to }: Span): string {
  return from === to ? grouped(from) : `${grouped(from)} to ${grouped(to)}`;
}
