// Which definition of a policy is in force, since when and by whom; and what other live workers have instead.
import os from "node:os";
import test from "ava";
import { concurrency, definePolicy, throttle } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { nameOf, table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";
import { HERE } from "./world.ts";

const tasks = { p: async () => {} };

test("a policy's page says which definition is in force, since when, and who declared it", async (t) => {
  const worker = await startWorker(t, { policies: [capped(5)], tasks });
  await hasDeclared(worker);
  const { pool } = worker;
  const { rows } = await pool.query("select * from dispatch_policy.definitions");
  t.is(rows.length, 1);
  t.like(rows[0], { policy: "p", version: 0, in_force: true, host: os.hostname(), pid: process.pid });
  const page = await pageOf(pool);
  const since = rows[0].in_force_at.toISOString().slice(0, 19).replace("T", " ");
  t.true(
    page.includes(`version 0, in force since <time datetime="${rows[0].in_force_at.toISOString()}">${since}`),
  );
  t.true(page.includes(`<dd>${os.hostname()}, process ${process.pid}</dd>`));
  t.regex(page, /<dt>workers that have it<\/dt><dd>1 live worker pool<\/dd>/);
  t.notRegex(page, /Definitions that differ/);
});

test("two live definitions stand side by side, with what differs and how many have each", async (t) => {
  const first = await startWorker(t, { policies: [capped(5)], tasks });
  const { pool, database } = first;
  const before = (await pool.query("select * from dispatch_policy.definitions")).rows[0];
  await hasDeclared(first); // else it might declare its policy again after the second one
  const second = await startWorker(t, { policies: [capped(6, 7)], tasks, database });
  await hasDeclared(second);
  await until("both are known", async () => (await live(pool)).length === 2);
  const rows = (await pool.query("select * from dispatch_policy.definitions order by in_force")).rows;
  t.deepEqual(
    rows.map(({ in_force, live_workers }) => [in_force, live_workers]),
    [
      [false, 1],
      [true, 1],
    ],
  );
  t.is(rows[0].hash, before.hash);
  t.is(rows[0].in_force_at, null);
  t.deepEqual(rows[0].differs, [
    { option: "gate concurrency, values", now: { max: 6 }, here: { max: 5 } },
    ...["kind", "position", "scope", "values"].map((option) => ({
      option: `gate throttle, ${option}`,
      now: rows[1].definition.gates[1][option],
      here: null,
    })),
  ]);
  const page = await pageOf(pool);
  t.regex(page, /In force \(version 0: 1 live worker pool\)<.*Here \(version 0: 1 live worker pool\)</s);
  for (const text of ["{&quot;max&quot;:6}", "{&quot;max&quot;:5}", "gate throttle, values"])
    t.true(page.split("Definitions that differ")[1]?.includes(text), text);

  await second.stop();
  await until("one is left", async () => (await live(pool)).length === 1);
  await until("the one that is left is in force", async () =>
    (await pageOf(pool)).includes("<dt>workers that have it</dt><dd>1 live worker pool</dd>"),
  );
  t.notRegex(await pageOf(pool), /Definitions that differ/);
});

test("a worker that starts with the definition in force leaves it to whoever declared it", async (t) => {
  const { pool, database } = await startWorker(t, { policies: [capped(5)], tasks });
  await table(pool, "definitions").set({ host: "web-1", pid: 7 });
  await startWorker(t, { policies: [capped(5)], tasks, database });
  await until("both have it", async () => (await live(pool))[0]?.live_workers === 2);
  t.regex(await pageOf(pool), /<dd>web-1, process 7<\/dd>/);
});

test("a definition that nobody has goes a day later, with the next declaration", async (t) => {
  const { pool } = await startWorker(t, { policies: [capped(5)], tasks });
  const declares = (hash: string) =>
    pool.query(
      `select dispatch_policy_internal._declare_policy(definition, $1, '{}', 'epoch') from ${nameOf("policies")}`,
      [hash],
    );
  const passes = (hours: number) =>
    table(pool, "definitions").set({ declared_at: (its) => `${its} - interval '${hours} hours'` });
  const hashes = async () =>
    (await pool.query("select hash from dispatch_policy.definitions where not in_force order by 1")).rows.map(
      ({ hash }) => hash,
    );
  await declares("old");
  await passes(23);
  await declares("new");
  t.deepEqual(await hashes(), ["new", "old"]);
  await passes(2);
  await declares("newer");
  t.deepEqual(await hashes(), ["new", "newer"]);
});

function capped(max: number, rate?: number) {
  const gates = [concurrency({ max }), ...(rate === undefined ? [] : [throttle({ rate, per: "1 second" })])];
  return definePolicy("p", { partitionBy: "k", gates });
}

/** It says so at the end of its start. */
function hasDeclared({ log }: TestWorker): Promise<unknown> {
  return until("it is started", () => log.some(({ message }) => message.includes("this worker")));
}

type Pool = TestWorker["pool"];

async function live(pool: Pool) {
  const { rows } = await pool.query(
    "select live_workers from dispatch_policy.definitions where live_workers > 0",
  );
  return rows as readonly { live_workers: number }[];
}

async function pageOf(pool: Pool): Promise<string> {
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const answer = await ui(new Request(`${HERE}/policy?policy=p`));
  return answer.text();
}
