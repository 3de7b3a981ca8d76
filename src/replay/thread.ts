// The thread in which `diff` replays. It has a thread of its own, because the clock of a PGlite is this thread's Date.
import { parentPort, workerData } from "node:worker_threads";
import type { RecordedLoad } from "../db/engine.ts";
import { CAP_KINDS } from "../gates/index.ts";
import type { Answer, Replay } from "../operate/diff.ts";
import { type PGliteLike, pglitePool } from "../testing.ts";
import { even, spread } from "./durations.ts";
import { figuresOf, spanOf } from "./figures.ts";
import { type Plan, planOf } from "./plan.ts";
import { type Limit, simulate } from "./simulate.ts";

const { recorded, changed, limit, most } = workerData as Replay;

/** Not as a literal: PGlite's own types would need `skipLibCheck` then, also of whoever uses this package. */
const PGLITE: string = "@electric-sql/pglite";
interface PGlite extends PGliteLike {
  close(): Promise<void>;
}

try {
  parentPort?.postMessage({ diff: await replayBoth() });
} catch (error) {
  const { message, code } = error as { message: string; code?: string };
  parentPort?.postMessage({ error: { message, code } });
}

async function replayBoth(): Promise<Answer> {
  const plan = planOf(recorded, most);
  const { PGlite } = (await import(PGLITE)) as { PGlite: { create(): Promise<PGlite> } };
  const db = await PGlite.create();
  const pool = pglitePool(db);
  try {
    const isInterval = countsInFlight(recorded) || countsInFlight(changed);
    const replays = async (load: RecordedLoad, more: readonly Limit[]) => {
      const planned = load === recorded ? plan : planOf(load, most);
      const limits = [...limitsOf(load, planned), ...more];
      const found = [];
      for (const durations of isInterval ? [even, spread(load)] : [null])
        found.push(
          figuresOf(await simulate({ pool, recorded: load, plan: planned, limits, durations }), planned),
        );
      return found;
    };
    const before = await replays(recorded, []);
    const after = await replays(changed, limit ? [{ ...limit, from: null, until: null }] : []);
    const figures = (all: typeof before, place: number) => spanOf(all.map((one) => one[place] as never));
    return {
      from: new Date(plan.from),
      until: new Date(plan.until),
      jobs: plan.jobs.length,
      recordedJobs: plan.recorded,
      waited: plan.waited,
      waitedReplayed: plan.waitedReplayed,
      isInterval,
      partitions: plan.partitions.map(({ key, isOthers, came, admitted }, place) => ({
        ...{ partition: isOthers ? null : key, came, admitted },
        ...{ before: figures(before, place), after: figures(after, place) },
      })),
    };
  } finally {
    await pool.end();
    await db.close();
  }
}

/** If none does, one replay without the jobs' ends is enough. Else one has even runs, and one has different ones. */
function countsInFlight({ definition }: RecordedLoad): boolean {
  const counts = definition.gates.some(({ kind }) => CAP_KINDS.some((cap) => cap === kind));
  return counts || definition.fairBy === "work";
}

/** The operators' limits as they were, each from its time. */
function limitsOf({ overrides }: RecordedLoad, { from, until }: Plan): Limit[] {
  return overrides
    .map(({ from: fromAt, until: untilAt, setAt, ...limit }) => ({
      ...limit,
      from: Math.max(Date.parse(fromAt ?? setAt), from),
      until: untilAt === null ? null : new Date(untilAt),
    }))
    .filter((limit) => limit.from < until && (limit.until === null || limit.until.getTime() > limit.from))
    .sort((a, b) => a.from - b.from)
    .map((limit) => ({ ...limit, from: limit.from > from ? new Date(limit.from) : null }));
}
