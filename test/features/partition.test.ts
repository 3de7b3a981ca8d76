// What a job's helpers say of its partition.
import test from "ava";
import type { Job } from "graphile-worker";
import { concurrency, definePolicy } from "../../src/index.ts";
import { admittedPartition, partitionMark } from "../../src/run/admitted-partition.ts";
import { ticketOf } from "../../src/run/fetched-job.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const policy = definePolicy("päcket 🚀", { partitionBy: "key", gates: [concurrency({ max: 3 })] });

test("the mark of a partition is the beginning of its id", async (t) => {
  const { pool } = await testDatabase(t);
  for (const key of ["a", "", "ü🚀", "x".repeat(1024), 'k"\\']) {
    const { rows } = await pool.query("select dispatch_policy_internal._partition_id($1, $2)::text as id", [
      policy.identifier,
      key,
    ]);
    t.is(partitionMark(policy.identifier, key), rows[0].id.slice(0, 8));
  }
});

const marked = (key: string, payload: unknown) =>
  ({
    payload,
    task_identifier: policy.identifier,
    key: null,
    flags: {
      [`dispatch_policy:1000000000000001@1795400000000#${partitionMark(policy.identifier, key)}`]: true,
    },
  }) as unknown as Job;

const partitionOf = (job: Job, lookUp: () => Promise<string | undefined>) =>
  admittedPartition(policy, job, ticketOf(job)?.mark ?? null, lookUp);

test("the partition that the payload gives needs no query where the mark agrees", async (t) => {
  const lookUp = async () => t.fail() as never;
  t.is(await partitionOf(marked("a", { key: "a" }), lookUp), "a");
  t.is(await partitionOf({ flags: null } as Job, lookUp), undefined);
});

test("it is looked up where the mark differs, or the payload gives none", async (t) => {
  const lookUp = async () => "named";
  for (const payload of [{ key: "a" }, {}, null])
    t.is(await partitionOf(marked("named", payload), lookUp), "named");
  t.is(await partitionOf(marked("named", { key: "a" }), async () => undefined), "a");
});

test("a first attempt knows the partition that SQL named", async (t) => {
  const seen: string[] = [];
  const plain = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 3 })] });
  const worker = await startWorker(t, {
    policies: [plain],
    tasks: { p: async (_payload, helpers) => void seen.push(helpers.dispatchPolicy!.partition) },
  });
  await worker.pool.query(`select dispatch_policy.add_job('p', '{"key": "a"}', partition_key => 'named')`);
  await worker.utils.addJob("p", { key: "b" });
  await until("both ran", () => seen.length === 2);
  t.deepEqual(seen.toSorted(), ["b", "named"]);
});

test("a context may read queue and time: each way in and each attempt has the partition that they give", async (t) => {
  const seen: string[] = [];
  const byJob = definePolicy("p", {
    context: (_payload, { queueName, runAt }) => ({
      queue: queueName ?? "none",
      day: runAt?.toISOString().slice(0, 10),
    }),
    partitionBy: ({ queue, day }) => `${queue} ${day}`,
    backoff: () => "10 ms",
    gates: [concurrency({ max: 3 })],
  });
  const worker = await startWorker(t, {
    policies: [byJob],
    tasks: {
      p: async (payload, { job, dispatchPolicy, query }) => {
        const { rows } = await query(
          "select partition from dispatch_policy.in_flight_jobs where job_id = $1",
          [job.id],
        );
        seen.push(`${(payload as { by: string }).by} ${job.attempts}: ${dispatchPolicy!.partition}`);
        t.is(rows[0]!.partition, dispatchPolicy!.partition);
        if (job.attempts === 1) throw new Error("the first time");
      },
    },
  });
  await worker.utils.addJob("p", { by: "code" }, { queueName: "q1", runAt: new Date("2020-01-01T12:00Z") });
  await worker.utils.addJob("p", { by: "default" });
  await worker.pool.query(`select dispatch_policy.add_job('p', '{"by": "sql"}', 'q2', '2020-01-02 12:00Z')`);
  await worker.pool.query(`select graphile_worker.add_job('p', '{"by": "past"}', 'q3', '2020-01-03 12:00Z')`);
  await until(
    "all succeeded",
    () => worker.happened.filter(({ event }) => event === "job:success").length === 4,
    {
      seen: () => worker.happened.map(({ event, payload, error }) => [event, payload, error]),
    },
  );
  t.deepEqual(seen.toSorted(), [
    "code 1: q1 2020-01-01",
    "code 2: q1 2020-01-01",
    "default 1: none undefined",
    "default 2: none undefined",
    "past 1: q3 2020-01-03",
    "past 2: q3 2020-01-03",
    "sql 1: q2 2020-01-02",
    "sql 2: q2 2020-01-02",
  ]);
});
