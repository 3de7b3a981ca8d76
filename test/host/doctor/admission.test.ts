// The doctor on admission: nobody ticks, no crontab, switches, pauses, breakers, jobs that are quarantined, lost slots.
import { once } from "node:events";
import test from "ava";
import type { Task } from "graphile-worker";
import { concurrency, definePolicy } from "../../../src/index.ts";
import { patient } from "../../helpers/doctor.ts";
import { liveLeases } from "../../helpers/leases.ts";
import { greet } from "../../helpers/policies.ts";
import { table, workerTable } from "../../helpers/table.ts";
import { until } from "../../helpers/until.ts";
import { startWorker } from "../../helpers/worker.ts";

const TICK = `select graphile_worker.add_job('dispatch_policy_tick', '{"_cron": {"ts": "2026-11-25T00:00:00Z"}}')`;

test("nobody ticks: a job that nobody routed, and a partition that nobody looked at, are found", async (t) => {
  const it = await patient(t);
  const soon = { untickedMs: 1 };
  await it.utils.addJob("greet", { name: "Ana" } as never);
  t.deepEqual(await it.findings("nobody-ticks"), []);
  const unrouted = await until("it is overdue", async () => (await it.findings("nobody-ticks", soon))[0]);
  t.like(unrouted, { severity: "critical" });
  t.regex(
    unrouted.sentence,
    /^Nobody ticks policy "greet", shard "default": due work has waited for \d+ s\.$/,
  );
  await it.utils.pause({ policy: "greet" });
  await it.utils.tick({ policy: "greet" }); // routes, and admits nothing
  t.deepEqual(await it.findings("nobody-ticks", soon), []);
  await it.utils.resume({ policy: "greet" });
  await until("it is overdue", async () => (await it.findings("nobody-ticks", soon))[0]);
  await it.utils.tick({ policy: "greet" });
  t.deepEqual(await it.findings("nobody-ticks", soon), []);
});

test("a leader's work is not overdue", async (t) => {
  const it = await patient(t);
  await startWorker(t, { database: it, policies: [greet], tasks: { greet: () => {} } });
  await it.utils.pause({ policy: "greet", partition: "Ana" });
  await it.utils.addJobs(["Ana", "Bo"].map((name) => ({ identifier: "greet", payload: { name } })));
  await until("it leads", async () => (await liveLeases(it.pool)).length > 0);
  t.deepEqual(await it.findings("nobody-ticks", { untickedMs: 1 }), []);
});

test("a crontab without the tick is found once a worker has run for long enough, and its tick mends it", async (t) => {
  const it = await patient(t);
  await startWorker(t, { database: it, policies: [greet], tasks: { greet: () => {} } });
  t.deepEqual(await it.findings("no-crontab-tick"), []);
  await table(it.pool, "workers").set({ started_at: () => "now() - interval '10 minutes'" });
  const [found] = await it.findings("no-crontab-tick");
  t.like(found, { severity: "warning", mend: "* * * * * dispatch_policy_tick ?jobKey=dispatch_policy_tick" });
  t.is(found?.sentence, `The crontab's tick, the safety net, never came for policy "greet".`);
  await it.pool.query("select graphile_worker.add_job('dispatch_policy_tick')"); // by hand: that is no crontab
  await it.pool.query(TICK);
  await until("it has come", async () => (await it.findings("no-crontab-tick")).length === 0);
  await table(it.pool, "policies").set({ crontab_ticked_at: (its) => `${its} - interval '10 minutes'` });
  t.regex((await it.findings("no-crontab-tick"))[0]!.sentence, /last came 10 min ago for policy "greet"\.$/);
});

test("the crontab's tick that nobody runs, or that fails, is found", async (t) => {
  const it = await patient(t);
  await it.pool.query(
    "select graphile_worker.add_job('dispatch_policy_tick', '{\"policy\": \"nope\"}', job_key => 'dispatch_policy_tick')",
  );
  t.deepEqual(await it.findings("crontab-tick-waits"), []);
  const waits = await until(
    "it waits",
    async () => (await it.findings("crontab-tick-waits", { untickedMs: 1 }))[0],
  );
  t.regex(waits.sentence, /^The crontab's tick \(job \d+\) has waited for a worker for \d+ s\.$/);
  await startWorker(t, { database: it, policies: [greet], tasks: { greet: () => {} } });
  const fails = await until("it fails", async () => (await it.findings("crontab-tick-waits"))[0]);
  t.regex(fails.sentence, /^The crontab's tick \(job \d+\) fails: unknown policy "nope"/);
});

test("a policy that is off while jobs wait is found, and what it says switches it on", async (t) => {
  const it = await patient(t);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  await it.utils.disable({ policy: "greet" });
  const [found] = await it.findings("policy-off");
  t.is(found?.sentence, 'Policy "greet" is switched off while jobs wait for it, so no gate applies to them.');
  await it.pool.query(found!.mend);
  t.deepEqual(await it.findings("policy-off"), []);
});

test("once its jobs went back, a policy that is off is in order, also while their times have not come", async (t) => {
  const it = await patient(t);
  await it.utils.addJob("greet", { name: "Ana" } as never, { runAt: new Date(Date.now() + 3_600_000) });
  await it.utils.tick();
  await it.utils.disable({ policy: "greet" });
  t.is((await it.findings("policy-off")).length, 1);
  t.is((await it.utils.unstage({ policy: "greet" })).changed, 1);
  await it.utils.tick();
  t.deepEqual(await it.findings("policy-off"), []);
});

test("a paused policy is worth knowing, and that all are paused is a warning", async (t) => {
  const other = definePolicy("other", { partitionBy: "name" });
  const it = await patient(t, [greet, other]);
  const until = new Date(Date.now() + 3_600_000);
  await it.utils.pause({ policy: "greet", by: "ana", reason: "incident 12", until });
  const [one] = await it.findings("policy-paused");
  t.like(one, { severity: "info" });
  t.is(one?.sentence, `Policy "greet" is paused, by ana (incident 12), until ${until.toISOString()}.`);
  t.deepEqual(await it.findings("everything-paused"), []);
  await it.utils.pause({ all: true, by: "bo" });
  t.deepEqual(await it.findings("policy-paused"), []);
  const [all] = await it.findings("everything-paused");
  t.like(all, { severity: "warning" });
  t.is(all?.sentence, 'Every policy is paused, the first is "greet", by bo.');
  await it.pool.query(all!.mend);
  t.deepEqual(await it.findings("everything-paused"), []);
});

test("an open breaker is found, and what it says closes it", async (t) => {
  const fragile = definePolicy("fragile", {
    partitionBy: "name",
    breaker: { failures: 1, within: "1 minute", cooldown: "1 hour" },
  });
  const it = await patient(t, [fragile]);
  let fails = true;
  const tasks = {
    fragile: async () => {
      if (fails) throw new Error("502");
    },
  };
  await startWorker(t, { database: it, policies: [fragile], tasks });
  await it.utils.addJob("fragile", { name: "it's" } as never);
  const found = await until("it is open", async () => (await it.findings("breaker-open"))[0]);
  t.is(found.sentence, `The breaker of policy "fragile" holds 1 partition, one is "it's".`);
  fails = false;
  await it.pool.query(found.mend);
  await until("it is closed", async () => (await it.findings("breaker-open")).length === 0);
});

test("a limit for a key that jobs spell otherwise is found, and clearing it mends that", async (t) => {
  const labels = definePolicy("labels", { partitionBy: "name", gates: [concurrency({ max: 4 })] });
  const it = await patient(t, [labels]);
  const limit = { policy: "labels", gate: "concurrency", set: { max: 100 } };
  await it.utils.setLimit({ ...limit, key: "new customer" });
  await it.utils.setLimit({ ...limit, key: "vega " });
  t.deepEqual(await it.findings("misspelt-limit"), [], "no job has such a key");
  await it.utils.addJob("labels", { name: "vega" } as never);
  await it.utils.tick({ policy: "labels" });
  const [found] = await it.findings("misspelt-limit");
  t.is(
    found?.sentence,
    'Somebody has set a limit of gate "concurrency" of policy "labels" for "vega ", which no job has: they have "vega".',
  );
  t.regex(found?.mend ?? "", /clear-limit --policy labels --gate concurrency --key 'vega '\n/);
  await it.utils.clearLimit({ policy: "labels", gate: "concurrency", key: "vega " });
  t.deepEqual(await it.findings("misspelt-limit"), []);
});

test("a run that takes far longer than others is found, and cancelling it mends that", async (t) => {
  const it = await patient(t, [greet]);
  let hangs = false;
  const greeting: Task = async (_payload, { abortSignal }) => {
    if (hangs) await once(abortSignal, "abort");
  };
  const tasks = { greet: greeting };
  await startWorker(t, { database: it, policies: [greet], tasks });
  await it.utils.addJob("greet", { name: "Ana" } as never);
  const minutes = table(it.pool, "minutes");
  await until("a run has ended", async () => {
    await it.utils.sweep();
    return (await minutes.all({ minute: "-infinity" })).some(
      ({ runs }) => Object.keys(runs as object).length > 0,
    );
  });
  hangs = true;
  await it.utils.addJob("greet", { name: "Ana" } as never);
  const jobs = workerTable(it.pool);
  const { id } = await until("it runs", async () => (await jobs.all()).find((job) => job.locked_at !== null));
  t.deepEqual(await it.findings("hung-run"), []);
  await jobs.set({ locked_at: (its: string) => `${its} - interval '41 minutes'` });
  const [found] = await it.findings("hung-run");
  t.regex(
    found?.sentence ?? "",
    new RegExp(
      `^1 job of policy "greet" has run far longer than its jobs do, the first for 41 min \\(job ${id}\\)`,
    ),
  );
  t.regex(found?.mend ?? "", new RegExp(`cancel ${id} --yes`));
  await it.utils.cancel({ ids: [id] });
  await until("it has ended", async () => (await it.findings("hung-run")).length === 0);
});

test("jobs that maxPending has dropped are found", async (t) => {
  const lists = definePolicy("lists", {
    partitionBy: "name",
    maxPending: { partition: 2, whenFull: "drop_oldest" },
  });
  const it = await patient(t, [lists]);
  await it.utils.addJobs(Array(5).fill({ identifier: "lists", payload: { name: "dune" } as never }));
  await it.utils.tick({ policy: "lists" }); // counts drops
  t.deepEqual(
    (await it.findings("dropped")).map(({ severity, sentence }) => [severity, sentence]),
    [
      [
        "info",
        'Policy "lists" has dropped 3 jobs within an hour, because as many waited as its maxPending allows.',
      ],
    ],
  );
});

test("a job that is quarantined is found, with its error", async (t) => {
  const picky = definePolicy("picky", {
    context: () => ({}),
    partitionBy: () => {
      throw new Error("no tenant");
    },
  });
  const it = await patient(t, [picky]);
  await it.pool.query("select dispatch_policy.add_job('picky', '{}')");
  t.deepEqual(await it.findings("quarantined"), []);
  await it.utils.tick({ policy: "picky" });
  const [found] = await it.findings("quarantined");
  t.regex(found!.sentence, /^1 job is quarantined, the first is \d+: .*no tenant/);
  await it.pool.query(found!.mend);
  t.deepEqual(await it.findings("quarantined"), []);
});

test("a slot of a job that Graphile Worker has no more is found, and a sweep frees it", async (t) => {
  const it = await patient(t);
  await it.utils.addJob("greet", { name: "Ana" } as never);
  await it.utils.tick({ policy: "greet" });
  t.deepEqual(await it.findings("lost-slots"), []);
  const { rows } = await it.pool.query("select job_id from dispatch_policy.in_flight_jobs");
  await it.pool.query("select graphile_worker.complete_jobs(array[$1::bigint])", [rows[0].job_id]);
  const [found] = await it.findings("lost-slots");
  t.like(found, { severity: "critical" });
  t.is(
    found?.sentence,
    `1 slot is occupied by jobs that Graphile Worker has no more, the first is job ${rows[0].job_id} of policy "greet".`,
  );
  await it.utils.sweep();
  t.deepEqual(await it.findings("lost-slots"), []);
});
