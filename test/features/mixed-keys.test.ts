// A partition whose jobs name different keys at a gate over a key of their own: it is said, on whatever path they come.
import { EventEmitter } from "node:events";
import test, { type ExecutionContext } from "ava";
import { Logger, type WorkerEvents } from "graphile-worker";
import {
  type AnyPolicy,
  addPolicyJobs,
  definePolicy,
  makePolicyUtils,
  type PolicyEventMap,
  policyEvents,
} from "../../src/index.ts";
import { patient } from "../helpers/doctor.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

type Payload = { shop: string; app: string };
const shops = (partitionBy: (ctx: Payload) => string = (ctx) => ctx.shop, more: object = {}) =>
  definePolicy("p", {
    context: (payload: unknown) => payload as Payload,
    partitionBy,
    gates: ({ throttle }) => [
      throttle({ name: "burst", rate: 100, per: "1 minute" }),
      throttle({
        name: "quota",
        scope: (ctx) => ctx.app,
        rate: 5,
        per: "1 day",
        window: "calendar",
        timeZone: "UTC",
      }),
    ],
    ...more,
  });

const SENTENCE =
  'Policy "p": jobs of partition "s" name different keys at gate "quota": "app1", then "app2". The waiting jobs of a partition ' +
  "are all charged to the key of the newest one, so the gate's limit may be exceeded. Make partitionBy finer: add what the key " +
  "is made of (logged once per partition)";
const TOLD = { policy: "p", partition: "s", gate: "quota", before: "app1", after: "app2" };

/** Utils that say what they tell. */
async function world(t: ExecutionContext, policy: AnyPolicy = shops()) {
  const it = await patient(t, [policy]);
  const warnings: string[] = [];
  const events: WorkerEvents = new EventEmitter();
  const told: PolicyEventMap["dispatchPolicy:mixedKeys"][] = [];
  policyEvents(events).on("dispatchPolicy:mixedKeys", (event) => told.push(event));
  const logger = new Logger(() => (level, message) => void (level === "warning" && warnings.push(message)));
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [policy], logger, events });
  t.teardown(() => utils.release());
  const add = (app: string, spec = {}) => utils.addJob("p", { shop: "s", app } as never, spec);
  const tick = () => utils.tick({ policy: "p" });
  const saysNothing = async () => {
    await tick();
    t.deepEqual([told, warnings, await it.findings("mixed-keys")], [[], [], []]);
  };
  return { ...it, utils, add, tick, told, warnings, saysNothing };
}

test("jobs of one partition that name two keys are told of once, and the doctor counts them", async (t) => {
  const it = await world(t);
  for (let n = 0; n < 8; n++) await it.add("app1");
  await it.saysNothing();
  await it.add("app2");
  await it.tick();
  t.deepEqual(it.told, [TOLD]);
  t.deepEqual(it.warnings, [SENTENCE]);
  for (const app of ["app1", "app2"]) await it.add(app);
  await it.tick();
  t.is(it.told.length, 1);
  t.is(it.warnings.length, 1);
  const [found, ...more] = await it.findings("mixed-keys");
  t.deepEqual(more, []);
  t.is(found!.severity, "warning");
  t.regex(
    found!.sentence,
    /^Policy "p": jobs of 1 partition, with \d+ staged jobs?, name different keys at a gate. One is "s", at gate "quota": "app1", then "app2"\. /,
  );
  await table(it.pool, "partitions").set({ mixed_at: () => "now() - interval '2 days'" });
  t.deepEqual(await it.findings("mixed-keys"), [], "it is over");
});

for (const [how, addBoth] of Object.entries({
  "in two calls before anybody ticks": async ({ add }: Awaited<ReturnType<typeof world>>) => {
    await add("app1");
    await add("app2");
  },
  "in one call": async ({ pool }: Awaited<ReturnType<typeof world>>) => {
    const payloads = ["app2", "app1", "app2"].map((app) => ({ shop: "s", app }));
    await addPolicyJobs(
      pool,
      payloads.map((payload) => ({ policy: shops(), payload })),
    );
  },
  "by SQL": async ({ pool }: Awaited<ReturnType<typeof world>>) => {
    for (const app of ["app1", "app2"])
      await pool.query("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ shop: "s", app })]);
  },
  "with the first one in flight": async ({ add, tick }: Awaited<ReturnType<typeof world>>) => {
    await add("app1");
    await tick();
    await add("app2");
  },
  "with the first one waiting for its time": async ({ add, tick }: Awaited<ReturnType<typeof world>>) => {
    await add("app1", { runAt: new Date(Date.now() + 3_600_000) });
    await tick();
    await add("app2");
  },
}))
  test(`they are told of if they come ${how}`, async (t) => {
    const it = await world(t);
    await addBoth(it);
    await it.tick();
    t.deepEqual(it.told, [TOLD]);
    t.deepEqual(it.warnings, [SENTENCE]);
  });

test("a worker tells of them, also if one was added past the policy", async (t) => {
  const policy = shops();
  const it = await patient(t, [policy]);
  const worker = await startWorker(t, {
    database: it,
    policies: [policy],
    tasks: { p: () => new Promise((end) => setTimeout(end, 50)) },
  });
  const rows = Array.from({ length: 8 }, (_, n) => JSON.stringify({ shop: "s", app: `app${1 + (n % 2)}` }));
  for (const row of rows) await it.pool.query("select graphile_worker.add_job('p', $1)", [row]);
  const said = await until("it is said", () =>
    worker.log.find(({ message }) => message.includes("name different keys")),
  );
  t.is(said.level, "warning");
  t.regex(
    said.message,
    /^Policy "p": jobs of partition "s" name different keys at gate "quota": "app[12]", then "app[12]"\. /,
  );
});

test("a finer partitionBy ends it", async (t) => {
  const it = await world(
    t,
    shops((ctx) => `${ctx.shop}:${ctx.app}`),
  );
  for (const app of ["app1", "app2", "app1"]) await it.add(app);
  await it.saysNothing();
});

test("what changes keys on purpose is not told of", async (t) => {
  const it = await world(t);
  // nothing of the partition waits or is in flight
  await it.add("app1");
  await it.tick();
  const { rows } = await it.pool.query("select job_id::text as id from dispatch_policy.in_flight_jobs");
  await it.utils.completeJobs(rows.map(({ id }) => id));
  await it.utils.sweep();
  await it.add("app2");
  await it.saysNothing();
  // an operator
  await it.add("app2", { runAt: new Date(Date.now() + 3_600_000) });
  await it.saysNothing();
  await it.utils.refreshContext({ policy: "p", partition: "s", context: { app: "app3" } });
  await it.saysNothing();
});

test("another context without another key is not told of, and neither is a new definition", async (t) => {
  const it = await world(t);
  const more = (note: string) => it.utils.addJob("p", { shop: "s", app: "app1", note } as never);
  await more("a");
  await more("b");
  await it.saysNothing();
  const renamed = shops(undefined, {
    gates: ({ throttle }: { throttle: (options: object) => never }) => [
      throttle({ name: "quota", scope: (ctx: Payload) => `${ctx.app}!`, rate: 5, per: "1 day" }),
    ],
  });
  const later = await makePolicyUtils({
    pgPool: it.pool,
    policies: [renamed],
    logger: new Logger(() => () => {}),
  });
  t.teardown(() => later.release());
  await later.addJob("p", { shop: "s", app: "app1", note: "c" } as never);
  await it.saysNothing();
});
