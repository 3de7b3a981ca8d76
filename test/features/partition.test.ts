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
    const { rows } = await pool.query("select dispatch_policy._partition_id($1, $2)::text as id", [
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
