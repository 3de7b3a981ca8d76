// A job is charged to the keys that it names, also if others of its partition name other ones: they wait in lanes.
import test, { type ExecutionContext } from "ava";
import { addPolicyJob, addPolicyJobs, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { patient } from "../helpers/doctor.ts";

interface Payload {
  shop: string;
  app: string;
}

const shops = (more: object = {}) =>
  definePolicy("p", {
    context: (payload: unknown) => payload as Payload,
    partitionBy: (ctx) => ctx.shop,
    gates: ({ throttle }) => [
      throttle({ name: "burst", rate: 100, per: "1 minute" }),
      throttle({ name: "quota", scope: (ctx) => ctx.app, rate: 5, per: "1 day", window: "sliding" }),
    ],
    ...more,
  });

async function world(t: ExecutionContext, policy = shops()) {
  const it = await patient(t, [policy]);
  const utils = await makePolicyUtils({ pgPool: it.pool, policies: [policy] });
  t.teardown(() => utils.release());
  const rows = async (text: string, values: unknown[] = []) => (await it.pool.query(text, values)).rows;
  return {
    ...it,
    utils,
    rows,
    add: (app: string, spec = {}, shop = "s") => addPolicyJob(it.pool, policy, { shop, app } as never, spec),
    tick: () => utils.tick({ policy: "p" }),
    /** How many jobs of each app were admitted. */
    admitted: async () =>
      Object.fromEntries(
        (
          await rows(
            `select j.payload ->> 'app' as app, count(*)::int as jobs from dispatch_policy.in_flight_jobs f
             join graphile_worker._private_jobs j on j.id = f.job_id group by 1 order by 1`,
          )
        ).map(({ app, jobs }) => [app, jobs]),
      ),
  };
}
type World = Awaited<ReturnType<typeof world>>;

const times = async (count: number, step: () => Promise<unknown>) => {
  for (let n = 0; n < count; n++) await step();
};

const WAYS: Record<string, (it: World, first: string, second: string) => Promise<void>> = {
  "call by call": async ({ add }, first, second) => {
    await times(8, () => add(first));
    await times(8, () => add(second));
  },
  "by turns": async ({ add }, first, second) => {
    await times(8, async () => {
      await add(first);
      await add(second);
    });
  },
  "in one call": async ({ pool }, first, second) => {
    const payloads = [first, second].flatMap((app) => Array.from({ length: 8 }, () => ({ shop: "s", app })));
    await addPolicyJobs(
      pool,
      payloads.map((payload) => ({ policy: shops(), payload: payload as never })),
    );
  },
  "by SQL": async ({ pool }, first, second) => {
    for (const app of [first, second])
      await times(8, () =>
        pool.query("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ shop: "s", app })]),
      );
  },
  "with a pass between": async ({ add, tick }, first, second) => {
    await times(8, () => add(first));
    await tick();
    await times(8, () => add(second));
  },
  "moved from another partition": async ({ add, tick, utils }, first, second) => {
    await utils.pause({ policy: "p", partition: "t" });
    await times(8, () => add(first, {}, "t"));
    await times(8, () => add(second, {}, "t"));
    await add(first);
    await tick();
    await utils.move({ policy: "p", partition: "t", toPartition: "s" });
  },
};
for (const [how, addBoth] of Object.entries(WAYS))
  for (const [first, second] of [
    ["app1", "app2"],
    ["app2", "app1"],
  ] as const)
    test(`each app has its quota if jobs of a shop come ${how}, ${first} first`, async (t) => {
      const it = await world(t);
      await addBoth(it, first, second);
      await times(3, it.tick);
      t.deepEqual(await it.admitted(), { app1: 5, app2: 5 });
    });

test("what an operator admits from one lane counts for the whole partition", async (t) => {
  const it = await world(t);
  for (const app of ["one", "two"]) {
    await it.add(app);
    await it.tick();
  }
  await it.add("one");
  t.like(await it.utils.admit({ policy: "p", partition: "s", count: 1 }), { changed: 1 });
  const [{ decayed }] = await it.rows(
    "select round(decayed_admits::numeric)::int as decayed from dispatch_policy.partitions",
  );
  t.is(decayed, 3);
});
