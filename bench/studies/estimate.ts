// npm run bench -- --estimate: whether jobs start when `explain` says. A worker runs jobs of some tenants that wait for a
// throttle or a cap, while jobs of all places in line are explained. Then each start is held against what was said of it.
import { setTimeout as delay } from "node:timers/promises";
import { type Random, random } from "../../test/helpers/random.ts";
import { startChild } from "../harness/children.ts";
import { addInCalls, TASK, type WaitingSize, type WaitsFor, waitingPolicy } from "../harness/jobs.ts";
import { openSide } from "../harness/sides.ts";
import { median } from "../harness/statistics.ts";

export interface EstimateSize extends WaitingSize {
  readonly jobs: number;
  /** How long jobs run, in milliseconds; if mixed, in the mean. */
  readonly jobMs: number;
  readonly slots: number;
  /** How long jobs run before the first is explained. */
  readonly warmUpMs: number;
  readonly samples: number;
  readonly everyMs: number;
}

export interface Estimated {
  readonly waitsFor: WaitsFor;
  readonly explained: number;
  /** How many of them had an estimate. */
  readonly estimated: number;
  /** The part of these that started within it, before it, and after it. */
  readonly inside: number;
  readonly early: number;
  readonly late: number;
  /** Medians, in milliseconds, from the explanation on. */
  readonly wait: number;
  readonly width: number;
  /** Of one explanation, in milliseconds. */
  readonly took: number;
  /** Why there was no estimate, with how often. */
  readonly without: Record<string, number>;
}

interface Said {
  readonly n: number;
  readonly at: number;
  readonly tookMs: number;
  readonly estimate: { from: string; until: string } | null;
  readonly why: string | null;
}

/** A job of all that wait, each as likely: by its hash with a number that is another each time. */
const ANY_WAITING = `select s.id, (s.payload ->> 'n')::int as n from dispatch_policy_internal.staged_jobs s
  order by hashint8extended(s.id, $1) limit 1`;
const SEED = 1;
const LOOKS_EVERY_MS = 50;

export async function measureEstimate(waitsFor: WaitsFor, size: EstimateSize): Promise<Estimated> {
  const side = await openSide("governed", { policy: waitingPolicy(waitsFor, size), autovacuum: true });
  const worker = startChild("waiting.ts", {
    ...{ side: "governed", url: side.url, tuned: false, slots: size.slots, waitsFor },
    size,
  });
  await worker.ask({}); // it is up
  const choices = random(SEED);
  const jobs = Array.from({ length: size.jobs }, (_, n) => ({
    identifier: TASK,
    payload: { n, tenant: `t${n % size.tenants}`, ms: lengthOf(waitsFor, size, choices) },
  }));
  await addInCalls(side.utils, jobs as never);
  await side.pool.query("vacuum analyze");
  await delay(size.warmUpMs);
  const said: Said[] = [];
  for (let k = 0; k < size.samples; k++) {
    const { rows } = await side.pool.query(ANY_WAITING, [SEED + k]);
    if (!rows[0]) break;
    const before = performance.now();
    const { rows: found } = await side.pool.query("select dispatch_policy.explain($1::bigint) as it", [
      rows[0].id,
    ]);
    const { as_of, estimate, no_estimate, state } = found[0].it;
    // one that was admitted between the two statements waits no longer
    if (state === "staged")
      said.push({
        ...{ n: rows[0].n, at: Date.parse(as_of), tookMs: performance.now() - before },
        ...{ estimate, why: no_estimate },
      });
    await delay(size.everyMs);
  }
  const starts = new Map<number, number>();
  while (!said.every(({ n }) => starts.has(n))) {
    for (const [n, at] of await worker.ask<object, [number, number][]>({})) starts.set(n, at);
    await delay(LOOKS_EVERY_MS);
  }
  await worker.stop();
  await side.close();
  return { waitsFor, ...judged(said, starts) };
}

function lengthOf(waitsFor: WaitsFor, { jobMs }: EstimateSize, choices: Random): number {
  return waitsFor === "own cap, mixed" ? -Math.log(1 - choices.unit()) * jobMs : jobMs;
}

function judged(said: readonly Said[], starts: ReadonlyMap<number, number>): Omit<Estimated, "waitsFor"> {
  const without: Record<string, number> = {};
  for (const { why } of said) if (why !== null) without[why] = (without[why] ?? 0) + 1;
  const told = said.flatMap(({ n, at, estimate }) => {
    if (!estimate) return [];
    const [from, until] = [Date.parse(estimate.from), Date.parse(estimate.until)];
    return [{ at, from, until, start: starts.get(n) as number }];
  });
  const part = (is: (one: (typeof told)[number]) => boolean) => told.filter(is).length / told.length;
  return {
    ...{ explained: said.length, estimated: told.length, without },
    inside: part(({ from, until, start }) => start >= from && start <= until),
    early: part(({ from, start }) => start < from),
    late: part(({ until, start }) => start > until),
    wait: median(told.map(({ at, start }) => start - at)),
    width: median(told.map(({ from, until }) => until - from)),
    took: median(said.map(({ tookMs }) => tookMs)),
  };
}
