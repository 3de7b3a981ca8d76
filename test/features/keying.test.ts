// Jobs staged from SQL whose partition only JavaScript can work out: one that it cannot harms no other.
import test from "ava";
import { concurrency, definePolicy } from "../../src/index.ts";
import { scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const unknownTenant = (say: (k: string) => string) =>
  definePolicy("p", {
    context: (payload: unknown) => payload as { k: string },
    partitionBy: (ctx) => {
      if (ctx.k.length > 5) throw new Error(say(ctx.k));
      return ctx.k;
    },
    gates: [concurrency({ max: 5 })],
  });

for (const [what, say, stored] of [
  ["is cut within an emoji", (k: string) => `no tenant ${k.slice(0, 7)}`, /no tenant abcdef\ufffd$/],
  ["holds a NUL", (k: string) => `no tenant \0${k}`, /no tenant \ufffdabcdef😀 tenant$/],
] as const) {
  test(`a job whose key function's error ${what} is quarantined, and the others go`, async (t) => {
    const ran: unknown[] = [];
    const worker = await startWorker(t, {
      policies: [unknownTenant(say)],
      tasks: { p: async (payload) => void ran.push((payload as { k: string }).k) },
    });
    const add = "select dispatch_policy.add_job('p', $1)";
    for (const k of ["abcdef😀 tenant", "a", "b"]) await worker.pool.query(add, [JSON.stringify({ k })]);
    await until("the others ran", () => ran.length === 2);
    t.deepEqual(ran.toSorted(), ["a", "b"]);
    const [row] = (await worker.pool.query("select reason, error from dispatch_policy.staged_jobs")).rows;
    t.is(row.reason, "waiting_key");
    t.regex(row.error, stored);
    const { rows } = await worker.pool.query("select id from dispatch_policy.staged_jobs");
    const warned = await until("it is warned about", () =>
      worker.log.find(
        ({ level, message }) => level === "warning" && message.startsWith('Policy "p" quarantined '),
      ),
    );
    t.is(
      warned.message,
      `Policy "p" quarantined 1 job, because it cannot work out the partition. The first is ${rows[0].id}: ${row.error}. ` +
        "They are tried again later. Correct or remove them: staged_jobs.error says what is wrong with each",
    );
  });
}

test("a batch that the database refuses is keyed in parts: only what it refuses is quarantined", async (t) => {
  const it = await scenario(
    t,
    unknownTenant((k) => `no tenant ${k}`),
  );
  // stands for whatever PostgreSQL refuses that JavaScript does not
  const accept = await table(it.pool, "arrivals").before(
    "insert",
    `if new.key in ('b07', 'b08', 'b30') then
       raise 'no room for %', new.context using errcode = 'check_violation';
     end if`,
  );
  const keys = Array.from({ length: 40 }, (_, n) => `b${String(n).padStart(2, "0")}`);
  for (const k of keys) await it.rows("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ k })]);
  t.is((await it.tick()).admitted, 37);
  const left = await it.rows("select error, failures, reason from dispatch_policy.staged_jobs order by id");
  t.deepEqual(
    left,
    ["b07", "b08", "b30"].map((k) => ({
      error: `no room for {"k": "${k}"}`,
      failures: 1,
      reason: "waiting_key",
    })),
  );
  t.is((await it.tick()).admitted, 0, "tried again later");

  await accept();
  await table(it.pool, "keyless_jobs").set({ retry_at: "-infinity" });
  t.is((await it.tick()).admitted, 3);
});

test("a sweep leaves a refused job its growing back-off", async (t) => {
  const it = await scenario(
    t,
    unknownTenant((k) => `no tenant ${k}`),
  );
  const keyless = table(it.pool, "keyless_jobs");
  await it.rows(`select dispatch_policy.add_job('p', '{"k": "unknown"}')`);
  for (let refused = 0; refused < 8; refused++) {
    await keyless.set({ retry_at: "-infinity" });
    await it.tick();
  }
  const before = await keyless.all();
  t.is(before[0].failures, 8);
  await it.utils.sweep();
  t.deepEqual(await keyless.all(), before, "a time that far ahead is the back-off, not a wrong clock");
});

test("a refused job that somebody reschedules is looked at again at once", async (t) => {
  let refuses = true;
  const it = await scenario(
    t,
    definePolicy("p", {
      context: (payload: unknown) => payload as { k: string },
      partitionBy: ({ k }) => {
        if (refuses) throw new Error("no tenant");
        return k;
      },
    }),
  );
  await it.rows(`select dispatch_policy.add_job('p', '{"k": "a"}')`);
  t.is((await it.tick()).admitted, 0);
  refuses = false;
  t.is((await it.tick()).admitted, 0, "it is tried again later");
  await it.rows("select dispatch_policy.reschedule_jobs(array(select id from dispatch_policy.staged_jobs))");
  t.is((await it.tick()).admitted, 1);
});

test("a job that somebody reschedules while keys are worked out comes later, and the others go", async (t) => {
  const it = await scenario(
    t,
    unknownTenant((k) => `no tenant ${k}`),
  );
  for (const k of ["a", "b", "c"])
    await it.rows("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ k })]);
  const app = await it.transaction();
  await app.query(
    "select dispatch_policy.reschedule_jobs(array(select id from dispatch_policy.staged_jobs order by id limit 1), priority => 1)",
  );
  t.is((await it.tick()).admitted, 2, "without waiting");
  await app.query("commit");
  t.is((await it.tick()).admitted, 1);
});

for (const [what, condition, code] of [
  ["an outage", "lock_not_available", "55P03"],
  ["a missing right", "insufficient_privilege", "42501"],
] as const) {
  test(`${what} while keys are worked out quarantines nothing`, async (t) => {
    const it = await scenario(
      t,
      unknownTenant((k) => `no tenant ${k}`),
    );
    await table(it.pool, "arrivals").before("insert", `raise 'busy' using errcode = '${condition}'`);
    await it.rows(`select dispatch_policy.add_job('p', '{"k": "a"}')`);
    await t.throwsAsync(it.tick(), { code });
    t.deepEqual(await it.rows("select error, failures from dispatch_policy.staged_jobs"), [
      { error: null, failures: 0 },
    ]);
  });
}
