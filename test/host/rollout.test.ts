// A new definition of a policy that has partitions already.
import test, { type ExecutionContext } from "ava";
import { Logger, run, WorkerPreset } from "graphile-worker";
import {
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  makePolicyUtils,
  throttle,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

type Tenant = { k: string; plan?: { rate: number } };

const before = definePolicy("p", {
  context: (payload: unknown) => payload as Tenant,
  partitionBy: (ctx) => ctx.k,
  gates: [concurrency({ max: 5 })],
});

/** Its new gate needs a plan, which the contexts of old partitions lack. */
const after = definePolicy("p", {
  context: (payload: unknown) => payload as Tenant,
  partitionBy: (ctx) => ctx.k,
  gates: [
    throttle<Tenant>({ rate: (ctx) => ctx.plan!.rate, per: "1 second" }),
    concurrency({ name: "concurrency", max: 7 }),
  ],
});

/** Partitions a to e of the policy as it was; c and d are too old for the one that comes. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies: [before], logger: silent });
  for (const k of ["a", "b", "c", "d", "e"])
    await utils.addJob(before, { k, ...(k !== "c" && k !== "d" && { plan: { rate: 9 } }) });
  await utils.tick({ policy: "p" });
  await utils.release();
  return database;
}

const WARNING =
  /policy "p" has changed, and of 5 partitions 2 keep the limits.*The first is "[cd]": policy "p": throttle: rate threw/;

test("a pool starts though some partitions' limits cannot be worked out again, and runs their jobs", async (t) => {
  const database = await world(t);
  const ran: string[] = [];
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void (level === "warning" && said.push(message)));
  const runner = await run({
    preset: { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [after] })], worker: { logger } },
    pgPool: database.pool,
    noHandleSignals: true,
    taskList: { p: async (payload) => void ran.push((payload as Tenant).k) },
  });
  t.teardown(() => runner.stop());
  await until("all ran", () => ran.length === 5);
  t.deepEqual(ran.toSorted(), ["a", "b", "c", "d", "e"]);
  t.is(said.length, 1, said.join("\n"));
  t.regex(said[0]!, WARNING);
});

test("what can be worked out again is, the rest keeps its limits until its next job", async (t) => {
  const { pool } = await world(t);
  const said: string[] = [];
  const logger = new Logger(() => (level, message) => void (level === "warning" && said.push(message)));
  const utils = await makePolicyUtils({ pgPool: pool, policies: [after], logger });
  t.teardown(() => utils.release());
  t.is(said.length, 1, said.join("\n"));
  t.regex(said[0]!, WARNING);
  await utils.tick({ policy: "p" });

  const limits = async () => {
    const { rows } = await pool.query(
      `select key, array(select l.gate || ' ' || coalesce((l.numbers).rate, (l.numbers).max) from dispatch_policy._private_limiters l
        where l.id = any(q.limiter_ids) and l.kind <> 'ahead' order by 1) as limits
       from dispatch_policy._private_partitions q order by key`,
    );
    return Object.fromEntries(rows.map(({ key, limits: own }) => [key, own]));
  };
  const [old, now] = [["concurrency 5"], ["concurrency 7", "throttle 9"]];
  t.deepEqual(await limits(), { a: now, b: now, c: old, d: old, e: now });

  await utils.addJob(after, { k: "c", plan: { rate: 9 } });
  await utils.tick({ policy: "p" });
  t.deepEqual((await limits()).c, now);
});
