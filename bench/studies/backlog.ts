// npm run bench -- --backlog: a worker beside a million jobs that wait, staged or in Graphile Worker's own table, and beside
// few. How many jobs it starts a second, and how soon an urgent one starts that is added meanwhile.
import { setTimeout as delay } from "node:timers/promises";
import type { Noted } from "../harness/children/consumer.ts";
import { startChild } from "../harness/children.ts";
import { addInCalls, openPolicy, specsOf, TASK } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide, type SideName } from "../harness/sides.ts";

export interface BacklogSize {
  readonly waiting: readonly number[];
  readonly partitions: number;
  readonly seconds: number;
  readonly urgentJobs: number;
}

export interface Backlog {
  readonly waiting: number;
  /** Jobs a second. */
  readonly pace: number;
  /** Of urgent jobs, milliseconds from adding to start. */
  readonly p50: number;
  readonly p99: number;
}

const URGENT = { priority: -100 };
const WARM_UP_MS = 3000;

export async function measureBacklog(name: SideName, waiting: number, size: BacklogSize): Promise<Backlog> {
  const side = await openSide(name, { policy: openPolicy, autovacuum: true });
  await addInCalls(side.utils, specsOf(waiting, size.partitions));
  await side.pool.query("vacuum analyze");
  await side.pool.query("checkpoint");
  const consumer = startChild("consumer.ts", { side: name, url: side.url, tuned: false });
  const note = () => consumer.ask<object, Noted>({});
  await note(); // it is there
  await delay(WARM_UP_MS);
  await note();
  const start = performance.now();
  for (let n = 0; n < size.urgentJobs; n++) {
    await delay((size.seconds * 1000) / size.urgentJobs);
    await side.utils.addJob(TASK, { tenant: `urgent-${n}`, addedAt: moment() }, URGENT);
  }
  const { started, p50, p99 } = await note();
  const pace = (started / (performance.now() - start)) * 1000;
  await consumer.stop();
  await side.close();
  return { waiting, pace, p50, p99 };
}
