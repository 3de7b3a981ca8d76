// Metrics: from SQL, through utils, the handler and the command, with a real worker.

import {
  type Attributes,
  type BatchObservableCallback,
  createNoopMeter,
  type Meter,
  type Observable,
} from "@opentelemetry/api";
import test from "ava";
import { definePolicy, makePolicyUtils, metricsHandler, observeMetrics, throttle } from "../../src/index.ts";
import { METRICS, PREFIX } from "../../src/metrics/catalogue.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { roles } from "../helpers/roles.ts";
import { serve } from "../helpers/serve.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "tenant",
  gates: ({ concurrency, throttle }) => [
    concurrency({ max: 2 }),
    throttle({ name: "all", scope: "policy", rate: 3, per: "1 hour" }),
  ],
});
const odd = definePolicy('odd "name"\\', { partitionBy: "tenant" });

/** Samples by name and labels: `admitted_total{policy="work"}`. */
function parsed(text: string): Map<string, number> {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(" ");
      return [line.slice(PREFIX.length, at), Number(line.slice(at + 1))];
    }),
  );
}

test("figures of a waiting policy: by reason, what is admissible, and how full its gates are", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work, odd], logger: silent });
  t.teardown(() => utils.release());
  const jobs = (tenant: string, count: number) =>
    Array.from({ length: count }, () => ({ identifier: "work", payload: { tenant } }));
  await utils.addJobs([...jobs("a", 3), ...jobs("b", 2), ...jobs("c", 1)]);
  await utils.pause({ policy: "work", partition: "c" });
  await utils.tick();
  const found = parsed(await utils.metrics());
  t.is(found.get('in_flight_jobs{policy="work"}'), 3);
  t.is(found.get('admitted_total{policy="work"}'), 3);
  t.is(found.get('staged_total{policy="work"}'), 6);
  t.is(found.get('wait_seconds_count{policy="work"}'), 3);
  t.true((found.get('wait_seconds{policy="work",quantile="0.95"}') ?? -1) > 0);
  const staged = [...found].filter(([name]) => name.startsWith("staged_jobs{") && name.includes('"work"'));
  t.is(
    staged.reduce((sum, [, jobs]) => sum + jobs, 0),
    3,
  );
  t.is(found.get('staged_jobs{policy="work",reason="paused"}'), 1);
  t.is(found.get('limiter_utilization_ratio{gate="concurrency",policy="work"}'), 1);
  t.is(found.get('limiters_over_limit{gate="concurrency",policy="work"}'), 0);
  t.is(found.get('admissible_jobs{policy="work"}'), 0);
  t.is(found.get('policy_info{policy="odd \\"name\\"\\\\",version="0"}'), 1);
  t.true((found.get('last_pass_age_seconds{policy="work"}') ?? -1) >= 0);
  t.true((found.get('oldest_due_age_seconds{policy="work"}') ?? -1) >= 0);
});

test("the oldest due job is the same for each who asks: whatever its priority, its partition and its router", async (t) => {
  const { pool } = await testDatabase(t);
  const tasks = ["work", "other"];
  const policy = definePolicy("work", {
    tasks,
    partitionBy: "tenant",
    gates: [throttle({ rate: 1, per: "1 hour" })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const longest = async () => {
    const text = await utils.metrics();
    const [{ rows: all }, { rows: one }] = await Promise.all([
      pool.query("select value from dispatch_policy.metrics() where name = 'oldest_due_age_seconds'"),
      pool.query(
        "select value from dispatch_policy.policy_metrics('work') where name = 'oldest_due_age_seconds'",
      ),
    ]);
    t.is(all.length, one.length);
    return parsed(text).get('oldest_due_age_seconds{policy="work"}');
  };
  /** Makes a job so many seconds old. */
  const add = async (age: number, { identifier = "work", priority = 0, dueAfter = 0 } = {}) => {
    const [job] = await utils.addJobs([{ identifier, payload: { tenant: "a" }, priority }]);
    const after = (seconds: number) => () => `now() + ${seconds} * interval '1 second'`;
    const times = { created_at: after(-age), run_at: after(dueAfter - age) };
    await table(pool, "staged_jobs").set(times, { id: job!.id });
    return job!.id;
  };
  const isAbout = async (age: number, job?: string) => {
    const found = await longest();
    t.true(found !== undefined && found >= age && found < age + 60, `${found} s, expected ${age}`);
    const { oldestDue, policies } = await utils.status();
    t.deepEqual(oldestDue, policies[0]!.oldestDue);
    t.like(oldestDue, { policy: "work", partition: "a" });
    t.true(oldestDue!.ageSeconds >= found! && oldestDue!.ageSeconds < age + 60);
    const { rows } = await pool.query("select oldest_due_id as id from dispatch_policy.policies");
    t.is(rows[0].id, oldestDue!.id);
    if (job !== undefined) t.is(oldestDue!.id, job);
  };
  t.is(await longest(), undefined);
  t.is((await utils.status()).oldestDue, null);
  const later = await add(0, { dueAfter: 3600 });
  t.is(await longest(), undefined, "none is due");
  await isAbout(500, await add(500)); // nobody has routed it
  await add(450);
  const last = await add(9000, { priority: 5 });
  await utils.tick();
  t.is(await pool.query("select from dispatch_policy.staged_jobs").then(({ rowCount }) => rowCount), 3);
  await isAbout(9000, last); // one was admitted, and another is next
  await utils.remove({ ids: [last] });
  const [left] = (await pool.query("select run_at from dispatch_policy.staged_jobs order by run_at")).rows;
  await isAbout((Date.now() - left.run_at.getTime()) / 1000 - 30); // whichever the tick has left
  await isAbout(3600, await add(7200, { identifier: "other", dueAfter: 3600 }));
  await table(pool, "staged_jobs").set({ run_at: "-infinity" }, { id: later });
  await isAbout(3600); // it is due since it was added
});

test("adaptive limits that are as low as they may be are counted by gate", async (t) => {
  const { pool } = await testDatabase(t);
  const policy = definePolicy("work", {
    partitionBy: "tenant",
    gates: ({ adaptiveConcurrency }) => [adaptiveConcurrency({ initialMax: 5, min: 2, targetLagMs: 1000 })],
  });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs(["a", "b", "c"].map((tenant) => ({ identifier: "work", payload: { tenant } })));
  await utils.tick();
  const atMinimum = async () =>
    parsed(await utils.metrics()).get('limiters_at_minimum{gate="adaptive_concurrency",policy="work"}');
  t.is(await atMinimum(), 0);
  const twoOfThem = { gate: "adaptive_concurrency", scope_key: ["b", "c"] };
  await table(pool, "limiters").set({ current_max: 1 }, twoOfThem);
  t.is(await atMinimum(), 2);
});

test("admissible jobs are those that only want for workers", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const admissible = async () => parsed(await utils.metrics()).get('admissible_jobs{policy="work"}');
  await utils.addJobs(["a", "a", "a", "b"].map((tenant) => ({ identifier: "work", payload: { tenant } })));
  await pool.query("select dispatch_policy_internal._route('work', null, 1000)");
  t.is(await admissible(), 3); // two of a by its cap, one of b; the throttle has three tokens
  await utils.setLimit({ policy: "work", gate: "all", set: { rate: 0 } });
  t.is(await admissible(), 0);
  await utils.clearLimit({ policy: "work", gate: "all" });
  await utils.pause({ policy: "work" });
  t.is(await admissible(), 0);
});

test("what a worker ran is counted exactly, and the same in SQL, by the handler and by the command", async (t) => {
  const policy = definePolicy("work", { partitionBy: "tenant", job: { maxAttempts: 1 } });
  const it = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: (payload) => {
        if ((payload as { fails?: boolean }).fails) throw new Error("no");
      },
    },
  });
  await it.utils.addJobs(
    Array.from({ length: 20 }, (_, n) => ({
      identifier: "work",
      payload: { tenant: `t${n % 3}`, fails: n < 4 },
    })),
  );
  await it.everythingIsReleased();
  await until("all are released", async () => {
    const found = parsed(await it.utils.metrics());
    const ended = ["succeeded", "failed"].map((outcome) =>
      found.get(`finished_total{policy="work",outcome="${outcome}"}`),
    );
    return ended[0] === 16 && ended[1] === 4;
  });
  const answer = await metricsHandler(it.utils)(new Request("http://localhost/metrics"));
  t.is(answer.status, 200);
  t.is(answer.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const found = parsed(await answer.text());
  t.is(found.get('admitted_total{policy="work"}'), 20);
  t.is(found.get('run_seconds_count{policy="work"}'), 20);
  t.is(found.get('queue_lag_seconds_count{policy="work"}'), 20);
  t.is(found.get("workers"), 1);
  const { rows } = await it.pool.query(
    "select sum(admitted)::int as admitted, sum(succeeded)::int as succeeded from dispatch_policy.minutes",
  );
  t.deepEqual(rows, [{ admitted: 20, succeeded: 16 }]);
  const command = await runCommand(it.database.url, "metrics");
  t.is(command.code, 0, command.stderr);
  const ofCommand = parsed(command.stdout);
  t.is(ofCommand.get('finished_total{policy="work",outcome="succeeded"}'), 16);
  const totals = [...found].filter(([name]) => /_(total|sum|count)\{/.test(name) && name.includes('"work"'));
  t.true(totals.length > 15);
  for (const [name, value] of totals) t.is(ofCommand.get(name), value, `two processes agree: ${name}`);
  const line = (await runCommand(it.database.url, "metrics", "--json")).stdout.split("\n")[0]!;
  t.deepEqual(Object.keys(JSON.parse(line)), ["name", "labels", "value"]);
});

test("every figure is in the catalogue, and every metric of the catalogue has its lines", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const text = await utils.metrics();
  for (const name of Object.keys(METRICS)) {
    t.true(text.includes(`# HELP ${PREFIX}${name} `), name);
    t.true(text.includes(`# TYPE ${PREFIX}${name} ${METRICS[name]?.type}\n`), name);
  }
  const { rows } = await pool.query("select distinct name from dispatch_policy.metrics()");
  for (const { name } of rows) t.true(name in METRICS || name.replace(/_(sum|count)$/, "") in METRICS, name);
});

test("the handler refuses other methods, and says why it cannot answer", async (t) => {
  const broken = metricsHandler({ metrics: async () => Promise.reject(new Error("no database")) });
  t.is((await broken({ method: "POST" })).status, 405);
  const answer = await broken({ method: "GET" });
  t.is(answer.status, 503);
  t.is(await answer.text(), "no database\n");
  t.throws(() => metricsHandler(undefined as never), { message: /expected utils/ });
});

test("a role that only looks gets the figures, and a role without the grant is told", async (t) => {
  const database = await testDatabase(t);
  const { pool, url } = database;
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  t.is((await runCommand(url, "metrics")).code, 0);
  const name = roles(t, database, ["looker"]).nameOf("looker");
  await pool.query(`create role ${name}; grant usage on schema dispatch_policy to ${name}`);
  const client = await pool.connect();
  await client.query(`set role ${name}`);
  await t.throwsAsync(client.query("select * from dispatch_policy.metrics()"), { code: "42501" });
  await client.query("reset role");
  await client.query(`grant execute on function dispatch_policy.metrics to ${name}`);
  await client.query(`set role ${name}`);
  t.true((await client.query("select * from dispatch_policy.metrics()")).rows.length > 5);
  client.release(true);
});

test("Node's http server serves them", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  const text = await (await fetch(`http://${await serve(t, metricsHandler(utils))}/`)).text();
  t.true(parsed(text).has('policy_info{policy="work",version="0"}'));
});

/** A meter that collects when it is told to, as an SDK does. */
function meterOf() {
  const names = new Map<Observable, string>();
  const callbacks = new Set<BatchObservableCallback>();
  const made = (name: string): Observable => {
    const instrument = { addCallback: () => {}, removeCallback: () => {} };
    names.set(instrument, name);
    return instrument;
  };
  const meter: Meter = Object.assign(createNoopMeter(), {
    createObservableGauge: made,
    createObservableCounter: made,
    addBatchObservableCallback: (callback: BatchObservableCallback) => callbacks.add(callback),
    removeBatchObservableCallback: (callback: BatchObservableCallback) => callbacks.delete(callback),
  });
  const collect = async () => {
    const found = new Map<string, number>();
    for (const callback of callbacks)
      await callback({
        observe: (metric: Observable, value: number, labels: Attributes = {}) => {
          const pairs = Object.entries(labels).map(([name, text]) => `${name}=${text}`);
          found.set(`${names.get(metric)}{${pairs.join()}}`, value);
        },
      });
    return found;
  };
  return { meter, names: () => [...names.values()], collect };
}

test("OpenTelemetry gets the figures under the names of Prometheus, by one question a collection, until it is ended", async (t) => {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs(["a", "b"].map((tenant) => ({ identifier: "work", payload: { tenant } })));
  await utils.tick();
  let asked = 0;
  const { meter, names, collect } = meterOf();
  const figures = () => {
    asked++;
    return utils.figures();
  };
  const end = observeMetrics({ figures }, meter);
  t.is(asked, 0);
  const known = Object.entries(METRICS).flatMap(([name, { type }]) =>
    type === "summary" ? [name, `${name}_sum`, `${name}_count`] : [name],
  );
  t.deepEqual(names().toSorted(), known.map((name) => PREFIX + name).toSorted());
  const collected = await collect();
  t.is(asked, 1);
  t.is(collected.get("dispatch_policy_in_flight_jobs{policy=work}"), 2);
  t.is(collected.get("dispatch_policy_wait_seconds_count{policy=work}"), 2);
  const scraped = [...parsed(await utils.metrics()).keys()].map((name) => PREFIX + name.replaceAll('"', ""));
  t.deepEqual([...collected.keys()].map((name) => name.replace("{}", "")).toSorted(), scraped.toSorted());
  end();
  t.is((await collect()).size, 0);
  t.throws(() => observeMetrics(utils, {} as never), { message: /expected a Meter/ });
});
