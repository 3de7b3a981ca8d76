// npm run bench -- --bloat: a million jobs go through, added as they are worked off, with autovacuum on. How large the
// tables have become, and how many dead rows are in them.
import { setTimeout as delay } from "node:timers/promises";
import type { Noted } from "../harness/children/consumer.ts";
import { startChild } from "../harness/children.ts";
import { addInCalls, openPolicy, specsOf } from "../harness/jobs.ts";
import { openSide, type SideName } from "../harness/sides.ts";
import { readTables, type Tables } from "../harness/tables.ts";

export interface BloatSize {
  readonly jobs: number;
  readonly jobsPerCall: number;
  readonly partitions: number;
  /** So many are there and wait; more are added when it is less. */
  readonly waiting: number;
}

export interface Bloat {
  /** Jobs a second. */
  readonly pace: number;
  readonly tables: Readonly<Record<"ours" | "graphileWorker", Tables>>;
}

const STEP_MS = 50;

export async function measureBloat(name: SideName, size: BloatSize): Promise<Bloat> {
  const side = await openSide(name, { policy: openPolicy, autovacuum: true });
  const consumer = startChild("consumer.ts", { side: name, url: side.url, tuned: true });
  const countStarted = async () => (await consumer.ask<object, Noted>({})).started;
  await countStarted(); // it is there
  const start = performance.now();
  let added = 0;
  let started = 0;
  while (started < size.jobs) {
    if (added < size.jobs && added - started < size.waiting) {
      await addInCalls(side.utils, specsOf(size.jobsPerCall, size.partitions));
      added += size.jobsPerCall;
    } else {
      await delay(STEP_MS);
    }
    started += await countStarted();
  }
  const pace = (started / (performance.now() - start)) * 1000;
  await consumer.stop(); // which records the last as complete
  const tables = {
    ours: await readTables(side.pool, ["dispatch_policy_internal"]),
    graphileWorker: await readTables(side.pool, ["graphile_worker"]),
  };
  await side.close();
  return { pace, tables };
}
