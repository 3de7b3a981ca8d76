// order: "deadline": the job with the earliest deadline of its partition goes first.
import test from "ava";
import { concurrency, definePolicy, PayloadError, type PolicyOptions, throttle } from "../../src/index.ts";
import { engine } from "../helpers/engine.ts";
import { payloadsInFlight } from "../helpers/native.ts";
import { type Ctx, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";

type Context = { key: string; dueBy: string | null };

/** Deadlines are a field of the payload. */
const byField = (more: Partial<PolicyOptions<string, undefined, Context>> = {}) =>
  definePolicy("p", {
    context: (payload: unknown): Context => {
      const { key, dueBy = null } = payload as Context;
      return { key, dueBy };
    },
    partitionBy: (ctx) => ctx.key,
    order: { deadline: (ctx) => ctx.dueBy },
    gates: [concurrency({ max: 1 })],
    ...more,
  } as PolicyOptions<string, undefined, Context>);

const day = (date: number) => `2040-01-${String(date).padStart(2, "0")}T00:00:00Z`;

/** Admits one job after another, and returns their numbers. */
async function inOrder(it: Scenario, jobs: number): Promise<number[]> {
  const order: number[] = [];
  for (let n = 0; n < jobs; n++) {
    await it.tick(60);
    order.push(...(await payloadsInFlight(it.pool)).map((payload) => payload.n));
    await it.finish(1);
  }
  return order;
}

for (const via of VIAS)
  test(`scenario 43: the earliest deadline goes first, and jobs without one last (${via})`, async (t) => {
    const it = await scenario(t, byField(), { via });
    const add = (n: number, dueBy: string | null, spec: object = {}) =>
      it.stage("1@a", { n, dueBy } as never, spec);
    await add(1, null);
    await add(2, day(20), { priority: -5 });
    await add(3, day(10));
    await add(4, day(10));
    await add(5, null, { priority: -5 });
    await add(6, "2040-01-05T12:00:00+02:00");
    await add(7, day(1), { runAt: it.at(30) });
    t.deepEqual(await inOrder(it, 7), [7, 6, 3, 4, 2, 5, 1]);
  });

test("without a deadline of its own, a job goes by the time at which it expires, from SQL as well", async (t) => {
  const policy = definePolicy("p", {
    partitionBy: "key",
    order: "deadline",
    expiresAfter: "3 hours",
    gates: [concurrency({ max: 1 })],
  });
  const it = await scenario(t, policy);
  const hours = (n: number) => new Date(Date.now() + n * 3_600_000);
  await it.stage("1@a", { n: 1 } as never);
  await it.stage("1@a", { n: 2 } as never, { expiresAt: hours(5) });
  await it.stage("1@a", { n: 3 } as never, { expiresAfter: "2 hours" });
  await it.rows(`select dispatch_policy.add_job('p', '{"key": "a", "n": 4}', expires_at => $1)`, [hours(1)]);
  await it.rows(`select dispatch_policy.add_job('p', '{"key": "a", "n": 5}')`);
  t.deepEqual(await inOrder(it, 5), [4, 3, 1, 5, 2]);
});

test("jobs from SQL and adopted ones get the deadline of their context", async (t) => {
  const it = await scenario(t, byField({ expiresAfter: "1 day" }));
  const add = (schema: string, n: number, dueBy: string | null) =>
    it.rows(`select ${schema}.add_job('p', $1)`, [JSON.stringify({ key: "a", n, dueBy })]);
  await add("graphile_worker", 1, day(3));
  await add("graphile_worker", 2, day(1));
  await add("dispatch_policy", 3, day(2));
  await add("dispatch_policy", 4, null);
  await it.utils.adopt({ task: "p" });
  t.deepEqual(await inOrder(it, 4), [4, 2, 3, 1], "what expires tomorrow goes first");
});

test("a wrong deadline is refused when the job is added", async (t) => {
  const it = await scenario(t, byField());
  for (const dueBy of ["2040-01-01 00:00", "2040-01-01T00:00:00", "2040-01-01", "soon", "T+00:00"]) {
    const error = await t.throwsAsync(it.stage("1@a", { dueBy } as never), { instanceOf: PayloadError });
    t.regex(error.message, /deadline returned by its function must be a valid Date, a text in ISO 8601/);
  }
  t.is(await it.staged(), 0);
});

test("a retry keeps its deadline", async (t) => {
  const it = await scenario(t, byField({ backoff: () => "1 second" }));
  const hands = await it.hands();
  for (const [n, date] of [3, 1, 2].entries()) await it.stage("1@a", { n, dueBy: day(date) } as never);
  const order = [];
  for (const how of ["badly", "well", "well", "well"] as const) {
    t.like(await it.tick(60), { admitted: 1 });
    await hands.run(1);
    order.push(...hands.running().map(({ payload }) => (payload as { n: number }).n));
    await hands.end(1, how);
  }
  t.deepEqual(order, [1, 1, 2, 0]);
});

test("a job with an early deadline that costs less does not wait for the tokens of the one it passes", async (t) => {
  const it = await scenario(t, {
    cost: (ctx: Ctx) => ctx.cost,
    gates: [throttle<Ctx>({ rate: 10, per: "1 hour" })],
    order: "deadline",
  });
  await it.stage("1@a", { cost: 9 });
  t.like(await it.tick(), { admitted: 1 });
  await it.stage("1@a", { cost: 8 }, { expiresAt: it.at(86_400) });
  t.like(await it.tick(1), { admitted: 0 });
  await it.stage("1@a", { cost: 1 }, { expiresAt: it.at(3600) });
  t.like(await it.tick(2), { admitted: 1 });
});

test("explain counts the jobs before it by their deadlines", async (t) => {
  const it = await scenario(t, byField({ gates: [concurrency({ max: 0 })] }));
  const [late] = await it.stage("1@a", { dueBy: day(9) } as never);
  const [none] = await it.stage("1@a", {} as never, { priority: -9 });
  const [early] = await it.stage("1@a", { dueBy: day(1) } as never);
  await it.tick();
  const places = [];
  for (const job of [early, late, none]) {
    const { place } = await it.utils.explain({ id: job!.id! });
    places.push(place?.jobsBefore);
  }
  t.deepEqual(places, [0, 1, 2]);
  t.is((await it.utils.explain({ policy: "p", partition: "a" })).id, early!.id);
});

test("jobs that were staged before their policy went by deadlines go last, and none is forgotten", async (t) => {
  const before = await engine(t, { gates: [] });
  await before.stage(["a", "a"]);
  await before.route();
  await before.table("policies").set({ job_order: "deadline", batch_size: 1 });
  await before.pool.query(`select dispatch_policy.enqueue('p', 0, $1, $2, 'replace')`, [
    JSON.stringify([{ key: "a", context: {}, weight: 1, limits: [] }]),
    JSON.stringify([{ n: 0, task: "p", p: 0, payload: {}, byDeadline: true, deadline: day(1) }]),
  ]);
  t.is(await before.passes(3), 3);
  const { rows } = await before.pool.query(
    "select staged_id::text as id from dispatch_policy.in_flight_jobs order by job_id",
  );
  const ids = rows.map(({ id }) => id);
  t.deepEqual(ids, [ids.toSorted().at(-1), ...ids.toSorted().slice(0, -1)]);
});
