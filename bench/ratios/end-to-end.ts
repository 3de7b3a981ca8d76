// Jobs per second of one worker process in its stride: all jobs are there (governed: staged, plain: in Graphile Worker's
// table) when the worker starts; it runs the first quarter, then the tables are analyzed, as autovacuum would by then, and
// the time runs from there to the last job's end. The task does nothing. With it: routing, ticks and releases, which the
// governed worker does beside its jobs. Not with it: staging, the start of the process, each backend's first plans
// (Graphile Worker's fetch reads its whole table for as long as the plan of its empty table lasts), and recording the last
// few jobs as complete. Each run has two new databases.
import type { Run } from "../harness/children/end-to-end.ts";
import { SLOTS, TUNED } from "../harness/children/worker.ts";
import { startChild } from "../harness/children.ts";
import { addInCalls, openPolicy, specsOf, TASK } from "../harness/jobs.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Measured, Ratio } from "../harness/ratio.ts";
import { openSide, type Side, type SideName } from "../harness/sides.ts";
import type { Sizes } from "../harness/sizes.ts";
import { medians, type Usage } from "../harness/usage.ts";

const slots = { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, gates: 3 };

export const endToEndDefault: Ratio = {
  name: "e2e_default",
  what: "governed jobs end to end ÷ plain Graphile Worker, its default settings",
  unit: "jobs/s",
  target: { atLeast: 0.85 },
  settings: slots,
  size: "endToEndDefault",
  measure: (sizes) => measure(sizes.endToEndDefault, false),
};

export const endToEndTuned: Ratio = {
  name: "e2e_tuned",
  what: "governed jobs end to end ÷ plain Graphile Worker, tuned for pace",
  unit: "jobs/s",
  target: { atLeast: 0.6 },
  settings: { ...slots, ...TUNED },
  size: "endToEndTuned",
  measure: (sizes) => measure(sizes.endToEndTuned, true),
};

/** Where adding has written. An empty table would be remembered as empty: see docs/benchmarks.md. */
const TABLES: Record<SideName, readonly string[]> = {
  governed: ["staged_jobs", "arrivals", "partitions", "limiters"].map(
    (name) => `dispatch_policy_internal.${name}`,
  ),
  plain: ["graphile_worker._private_jobs"],
};

async function measure(size: Sizes["endToEndDefault"], tuned: boolean): Promise<Measured> {
  const perJob: Record<SideName, Usage[]> = { governed: [], plain: [] };
  const pace = async (name: SideName) => {
    const side = await openSide(name, { policy: openPolicy });
    await addInCalls(side.utils, specsOf(size.jobs, size.partitions));
    // what adding left to do is done now, not while the worker is watched
    for (const table of TABLES[name]) await side.pool.query(`vacuum analyze ${table}`);
    await side.pool.query("checkpoint");
    const child = startChild("end-to-end.ts", { side: name, url: side.url, tuned });
    const first = Math.ceil(size.jobs / 4);
    const run = await child.ask<{ jobs: number; first: number }, Run>({ jobs: size.jobs, first });
    await child.stop();
    await checkNothingIsLeft(side);
    await side.close();
    perJob[name].push(run.perJob);
    return (run.jobs / run.ms) * 1000;
  };
  const pairs = await measurePairs(size, { subject: () => pace("governed"), baseline: () => pace("plain") });
  return { ...pairs, perJob: { subject: medians(perJob.governed), baseline: medians(perJob.plain) } };
}

async function checkNothingIsLeft({ pool }: Side): Promise<void> {
  const { rows } = await pool.query<{ left: number }>(
    `select (select count(*) from graphile_worker.jobs where task_identifier = $1)::int
       + (select count(*) from dispatch_policy.staged_jobs)::int
       + (select count(*) from dispatch_policy.in_flight_jobs)::int as left`,
    [TASK],
  );
  if (rows[0]?.left !== 0) throw new Error(`${rows[0]?.left} jobs were left over`);
}
