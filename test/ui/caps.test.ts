// What adaptive gates have learnt, over time: kept by minute, bounded, and drawn as it is kept.
import test from "ava";
import { createUi } from "../../src/ui/ui.ts";
import { adaptive, type Engine, engine } from "../helpers/engine.ts";
import { cellsOf, HERE } from "./world.ts";

const fold = (it: Engine) => it.number("select dispatch_policy_internal._fold_activity(1000)");
const SINCE = "now() - interval '1 hour', '1 minute'";
const stored = async (it: Engine) =>
  (await it.table("minutes").all()).flatMap(({ caps }) => caps).toSorted((a, b) => (a.key < b.key ? -1 : 1));

/** Lets a job of each of these partitions go, and end with this lag. */
async function run(it: Engine, partitions: readonly string[], lagMs: number): Promise<void> {
  await it.stage(partitions);
  await it.passes();
  const jobs = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  await it.release(jobs.map((job) => ({ job, attempt: 1, lagMs, durationMs: 1 })));
}

test("a cap that changes is kept by minute, with its least and its last, and the page draws it", async (t) => {
  const it = await engine(t, {
    gates: [adaptive(4, { scope: "policy" })],
  });
  await run(it, ["a"], 5000);
  const { rows: limiters } = await it.pool.query(
    "select current_max from dispatch_policy.limiters where kind = 'adaptive_concurrency'",
  );
  await fold(it);
  const [row, ...others] = await stored(it);
  t.deepEqual(others, []);
  t.is(row.last, limiters[0].current_max);
  t.true(row.last < 4, JSON.stringify(row));
  await run(it, ["a", "a"], 1);
  await fold(it);
  const { rows } = await it.pool.query(
    `select gate, key, lowest, last from dispatch_policy.adaptive_caps('p', ${SINCE}) order by minute`,
  );
  t.is(rows.length, 61);
  const { rows: now } = await it.pool.query(
    "select current_max from dispatch_policy.limiters where kind = 'adaptive_concurrency'",
  );
  t.is(rows.at(-1).last, now[0].current_max);
  const lowest = Math.min(...rows.flatMap((step) => step.lowest ?? []));
  t.true(lowest <= row.lowest);

  const ui = createUi({ pool: it.pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const page = await (await ui(new Request(`${HERE}/policy?policy=p`))).text();
  t.regex(page, new RegExp(`${row.gate}: now ${now[0].current_max}, lowest ${lowest}`));
  const [last] = cellsOf(page, "Limits learnt");
  t.is(last?.[3], String(now[0].current_max));
  const week = await (await ui(new Request(`${HERE}/policy?policy=p&period=7d`))).text();
  t.regex(week, new RegExp(`now ${now[0].current_max}, lowest ${lowest}`));
});

test("a cap that stays leaves nothing behind", async (t) => {
  const it = await engine(t, {
    gates: [adaptive(4, { max: 4, targetLagMs: 60_000, scope: "policy" })],
  });
  await run(it, ["a", "a", "a"], 1);
  await fold(it);
  t.deepEqual(await stored(it), []);
});

test("of each policy and minute ten limiters are kept, the lowest; those that are kept stay", async (t) => {
  const it = await engine(t, { gates: [] });
  const caps = async (changes: readonly (readonly [string, number])[]) => {
    const list = changes.map(([key, cap]) => ({ gate: "g", key, cap }));
    await it.table("activity").add({ policy_id: 1, at: "2026-01-01Z", caps: JSON.stringify(list) });
    await fold(it);
  };
  await caps(Array.from({ length: 12 }, (_, n) => [`k${n}`, 20 - n] as const));
  const kept = async () => (await stored(it)).map(({ key }) => key);
  const first = await kept();
  t.deepEqual(first, ["k10", "k11", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"]);
  await caps([
    ["low", 1],
    ["k2", 3],
    ["k2", 7],
  ]);
  t.deepEqual(await kept(), first);
  t.like(
    (await stored(it)).find(({ key }) => key === "k2"),
    { lowest: 3, last: 7 },
  );
});

test("a step without a change has the cap of the one before", async (t) => {
  const it = await engine(t, { gates: [] });
  const client = await it.session();
  await client.query("begin"); // no minute ends in it
  const { id: policy_id } = await it.table("policies").one();
  for (const [back, ...caps] of [
    [90, 9],
    [30, 3, 5],
  ]) {
    const at = () => `date_trunc('minute', now()) - ${back} * interval '1 minute'`;
    const list = caps.map((cap) => ({ gate: "g", key: "", cap }));
    await it.table("activity", client).add({ policy_id, at, caps: JSON.stringify(list) });
  }
  await client.query("select dispatch_policy_internal._fold_activity(10)");
  const { rows } = await client.query(
    `select lowest, last from dispatch_policy.adaptive_caps('p', ${SINCE}) order by minute`,
  );
  const at = (back: number) => rows[rows.length - 1 - back];
  t.deepEqual(
    [at(59), at(31), at(30), at(29), at(0)].map(({ lowest, last }) => [lowest, last]),
    [
      [9, 9],
      [9, 9],
      [3, 5],
      [5, 5],
      [5, 5],
    ],
  );
});
