// npm run bench -- --open: an application leaves a transaction open that has touched something. How soon jobs of other
// partitions start meanwhile, and without it, by turns. A job that the transaction concerns waits beside them both times.
import { setTimeout as delay } from "node:timers/promises";
import type { TaskSpec } from "graphile-worker";
import type pg from "pg";
import { startChild } from "../harness/children.ts";
import { ELSEWHERE, elsewherePolicy, TASK, touchedPolicy } from "../harness/jobs.ts";
import { moment } from "../harness/moment.ts";
import { openSide, type Side } from "../harness/sides.ts";
import { median, quantile } from "../harness/statistics.ts";
import type { Seen } from "./ahead.ts";

export interface OpenSize {
  /** With the transaction and without, each so often. */
  readonly turns: number;
  /** Jobs of other partitions in a turn, one after the other. */
  readonly samples: number;
}

export interface Touched {
  readonly kind: string;
  /** Milliseconds from adding to start, beside the open transaction. */
  readonly p50: number;
  readonly most: number;
  /** The same without it. */
  readonly p50Without: number;
  readonly mostWithout: number;
}

interface Kind {
  /** What the transaction does; $1 is a name that nothing has yet, or the id of the failed job. */
  readonly touch: string;
  /** The job that it concerns. Default: one of the partition. */
  readonly task?: string;
  readonly spec?: (name: string) => TaskSpec;
  /** Whether that job has failed before. */
  readonly failed?: boolean;
}

const HELD = "held";

const KINDS: Readonly<Record<string, Kind>> = {
  "a new queue name": {
    touch: "select from graphile_worker.add_job('other', queue_name => $1)",
    spec: (queueName) => ({ queueName }),
  },
  "a job key": {
    touch: "select from graphile_worker.add_job('other', job_key => $1)",
    spec: (jobKey) => ({ jobKey }),
  },
  "a new task": { touch: "select from graphile_worker.add_job($1)" },
  "a failed job, rescheduled": {
    touch: "select from graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())",
    failed: true,
  },
  "a take": { touch: `select from dispatch_policy.take('${TASK}', 'throttle', '${HELD}') where $1 <> ''` },
  "a hold": {
    touch: `select from dispatch_policy.hold('${TASK}', '${HELD}', now() + interval '1 second') where $1 <> ''`,
  },
  "a limit of another policy": {
    touch: `select from dispatch_policy.set_limit('${ELSEWHERE}', 'all', '{"rate": 5000}') where $1 <> ''`,
    task: ELSEWHERE,
  },
};

export async function measureOpen({ turns, samples }: OpenSize): Promise<Touched[]> {
  const side = await openSide("governed", {
    policy: [touchedPolicy, elsewherePolicy],
    autovacuum: true,
  });
  const worker = startChild("seen.ts", {
    side: "governed",
    url: side.url,
    tuned: false,
    policies: "touched",
  });
  const seen = collectStarts(() => worker.ask<object, Seen>({}));
  await turn({ side, seen, samples }, { touch: "select" }, "warm-up", false);
  const found: Touched[] = [];
  for (const [kind, how] of Object.entries(KINDS)) {
    console.error(`# open: ${kind}`);
    const waits = { beside: [] as number[], without: [] as number[] };
    for (let n = 0; n < 2 * turns; n++) {
      const isOpen = n % 2 === 0;
      const some = await turn({ side, seen, samples }, how, `${kind} ${n}`, isOpen);
      waits[isOpen ? "beside" : "without"].push(...some);
    }
    found.push({
      ...{ kind, p50: median(waits.beside), most: quantile(waits.beside, 1) },
      ...{ p50Without: median(waits.without), mostWithout: quantile(waits.without, 1) },
    });
  }
  await worker.stop();
  await side.close();
  return found;
}

interface World {
  readonly side: Side;
  readonly seen: ReturnType<typeof collectStarts>;
  readonly samples: number;
}

/** The waits of so many jobs of other partitions, one after the other. */
async function turn(world: World, kind: Kind, name: string, isOpen: boolean): Promise<number[]> {
  const { side, seen, samples } = world;
  const application = await side.pool.connect();
  try {
    const before = seen.count(HELD);
    const id = kind.failed ? await addFailed(world) : name;
    if (isOpen) await begin(application, kind.touch, id);
    if (!kind.failed) await side.utils.addJob(kind.task ?? TASK, { tenant: HELD }, kind.spec?.(name) ?? {});
    const waits: number[] = [];
    for (let n = 0; n < samples; n++) waits.push(await waitOf(world, `tenant ${n}`));
    if (isOpen) await application.query("rollback");
    await seen.until(HELD, before + (kind.failed ? 2 : 1));
    return waits;
  } finally {
    application.release();
  }
}

async function begin(application: pg.PoolClient, touch: string, value: string): Promise<void> {
  await application.query("begin");
  await application.query(touch, [value]);
}

async function waitOf({ side, seen }: World, tenant: string): Promise<number> {
  const before = seen.count(tenant);
  const added = moment();
  await side.utils.addJob(TASK, { tenant });
  return (await seen.until(tenant, before + 1)) - added;
}

/** A job that has failed once and waits for its retry. Returns its id in Graphile Worker. */
async function addFailed({ side }: World): Promise<string> {
  await side.utils.addJob(TASK, { tenant: HELD, fails: true });
  for (;;) {
    const { rows } = await side.pool.query<{ id: string }>(
      "select id from graphile_worker.jobs where task_identifier = $1 and attempts = 1 and run_at = 'infinity'",
      [TASK],
    );
    if (rows[0]) return rows[0].id;
    await delay(LOOKS_EVERY_MS);
  }
}

const LOOKS_EVERY_MS = 10;

/** What started so far, by tenant. */
function collectStarts(ask: () => Promise<Seen>) {
  const starts = new Map<string, number[]>();
  const of = (tenant: string) => starts.get(tenant) ?? [];
  async function look(): Promise<void> {
    for (const { tenant, at } of (await ask()).starts) starts.set(tenant, [...of(tenant), at]);
  }
  return {
    count: (tenant: string) => of(tenant).length,
    /** The moment of the tenant's start of this number. */
    async until(tenant: string, count: number): Promise<number> {
      for (await look(); of(tenant).length < count; await look()) await delay(LOOKS_EVERY_MS);
      return of(tenant)[count - 1] as number;
    },
  };
}
