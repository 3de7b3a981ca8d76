// When a job starts: rows are planted, and `explain` says an interval, or why nobody can tell.
import test, { type ExecutionContext } from "ava";
import {
  calendar,
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  MONTH,
  sliding,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { durations } from "../helpers/table.ts";

// biome-ignore lint/suspicious/noExplicitAny: json of any shape
type Explained = any;

async function explain({ pool }: Engine, id: string): Promise<Explained> {
  return (await pool.query("select dispatch_policy.explain($1::bigint) as it", [id])).rows[0].it;
}

/** The interval in seconds from the explanation on. */
function seconds(t: ExecutionContext, { as_of, estimate, no_estimate }: Explained): [number, number] {
  t.is(no_estimate, null);
  return [estimate.from, estimate.until].map((at) => (Date.parse(at) - Date.parse(as_of)) / 1000) as [
    number,
    number,
  ];
}

function unknown(t: ExecutionContext, it: Explained, why: string | RegExp): void {
  t.is(it.estimate, null);
  if (typeof why === "string") t.is(it.no_estimate, why);
  else t.regex(it.no_estimate, why);
  t.notRegex(it.sentence, /Expected/);
}

const TOO_FEW = "too few jobs of its partition went lately to tell a pace";
const AFTER_HOLD = "it waits for the end of the job that goes first after a hold";

const LED = `select dispatch_policy_internal._worker_alive('pool', 1, '{p}', 'host', 7, '1 hour', '0'),
  dispatch_policy_internal._lease('pool', '{p}', null, '1 hour', true)`;

/** So many jobs of partition a, as of a policy that a loop ticks. The passes admitted what they may. */
async function led(
  t: ExecutionContext,
  gates: readonly TestGate[],
  { jobs, passes = 1, ...options }: Partial<EngineOptions> & { jobs: number; passes?: number },
) {
  const world = await engine(t, { gates, ...options });
  const ids = await world.stage(Array(jobs).fill("a"));
  for (let n = 0; n < passes; n++) await world.passes();
  await world.pool.query(LED);
  return { world, ids, last: ids.at(-1)! };
}

/** As if the partition had admitted jobs at a steady pace for as long as its jobs wait. The count does not age meanwhile. */
async function paced(world: Engine, perSecond: number, forSeconds: number) {
  await world.table("partitions").set({
    decayed_at: () => "now() + interval '1 minute'",
    admitted_total: perSecond * forSeconds,
    decayed_admits: ((perSecond * 60) / Math.LN2) * (1 - 0.5 ** (forSeconds / 60)),
  });
  const ago = () => `now() - interval '${forSeconds} s'`;
  await world.table("staged_jobs").set({ created_at: ago, run_at: ago });
}

test("its own throttle: the jobs before it, by the rate", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 31 });
  const it = await explain(world, last);
  const [from, until] = seconds(t, it); // 20 jobs go before it, 10 s each
  t.true(from > 200 && from < 210 && until > 210 && until < 230, `${from} ${until}`);
  t.regex(it.sentence, /Expected to start in (3-)?[34] min\./);
});

test("a sliding window is known to one window", async (t) => {
  const { world, last } = await led(t, [sliding(10, { per: 100 })], { jobs: 31 });
  const [from, until] = seconds(t, await explain(world, last));
  t.true(from <= 200 && until >= 200 && until - from <= 206, `${from} ${until}`);
});

test("a sliding window of less than one job: one in a longer window", async (t) => {
  const { world, last } = await led(t, [sliding(0.5, { per: 50 })], { jobs: 5 });
  const [from, until] = seconds(t, await explain(world, last)); // the fourth that waits, each 100 s after another
  t.true(from <= 400 && from >= 299 && until >= 399 && until < 510, `${from} ${until}`);
});

test("a sliding window with room for all: at once; and what is too little for a job stays unused", async (t) => {
  const world = await engine(t, { gates: [sliding(10, { per: 100 })] });
  const ids = await world.stage(Array(5).fill("a"));
  await world.route();
  await world.pool.query(LED);
  t.true(seconds(t, await explain(world, ids[4]!))[1] <= 1);
  await world.table("staged_jobs").set({ cost: 6 });
  const [from, until] = seconds(t, await explain(world, ids[4]!)); // one in a window, the first at once
  t.true(from >= 199 && from <= 400 && until >= 400 && until < 520, `${from} ${until}`);
});

test("a calendar window: the beginning of the window in which it has room", async (t) => {
  const { world, ids, last } = await led(t, [calendar(10, MONTH)], { jobs: 31 });
  const zone = MONTH.split(" ")[1];
  for (const [id, months] of [
    [ids[10]!, 1],
    [ids[19]!, 1],
    [ids[20]!, 2],
    [last, 3],
  ] as const) {
    const it = await explain(world, id);
    const { rows } = await world.pool.query(
      `select extract(epoch from
        (date_trunc('month', $1::timestamptz at time zone $2) + make_interval(months => $3)) at time zone $2
        - $1::timestamptz)::float8 as s`,
      [it.as_of, zone, months],
    );
    const [from, until] = seconds(t, it);
    t.true(
      Math.abs(from - rows[0].s) < 0.1 && until >= from && until - from < 2,
      `${from} ${until} ${rows[0].s}`,
    );
    t.is(it.estimate.basis, "the tokens of its partition");
  }
});

test("a calendar window with room for some: at once, and then at its beginning", async (t) => {
  const world = await engine(t, { gates: [calendar(10, MONTH)] });
  const ids = await world.stage(Array(4).fill("a"), { cost: 4 });
  await world.route();
  await world.pool.query(LED);
  t.true(seconds(t, await explain(world, ids[1]!))[1] <= 1);
  const [[from], [later, until]] = [
    seconds(t, await explain(world, ids[2]!)),
    seconds(t, await explain(world, ids[3]!)),
  ];
  t.true(from > 3600 && Math.abs(later - from) < 1 && until - later < 2, `${from} ${later} ${until}`);
});

test("a job that costs more than the bucket holds waits for a full one", async (t) => {
  const world = await engine(t, { gates: [throttle(10, { per: 100 })] });
  await world.stage(Array(10).fill("a"));
  const [id] = await world.stage("a", { cost: 1e12 });
  await world.passes();
  await world.pool.query(LED);
  const [from, until] = seconds(t, await explain(world, id!));
  t.true(from > 90 && from <= 100 && until < 1e13, `${from} ${until}`);
});

test("a cap: the pace of the partition, as narrow as its jobs are many", async (t) => {
  const { world, ids, last } = await led(t, [concurrency(2)], { jobs: 602 });
  await paced(world, 10, 300);
  const [from, until] = seconds(t, await explain(world, last));
  t.true(from > 45 && from < 60 && until > 60 && until < 75, `${from} ${until}`);
  const [first, soon] = seconds(t, await explain(world, ids[2]!));
  t.true(first === 0 && soon > 0 && soon < 2, `${first} ${soon}`);
});

test("a slow start: jobs wait for longer than the partition has gone, and the pace is of the time since then", async (t) => {
  const { world, last } = await led(t, [concurrency(2)], { jobs: 602 });
  await paced(world, 10, 6);
  await world.table("staged_jobs").set({ created_at: () => "now() - interval '40 s'" });
  const [from, until] = seconds(t, await explain(world, last));
  t.true(from < 60 && until > 60 && until < 90, `${from} ${until}`);
});

test("jobs that only filled the slots of a cap tell no pace: they have not ended", async (t) => {
  const { world, last } = await led(t, [concurrency(4)], { jobs: 8 });
  unknown(t, await explain(world, last), "too few jobs of its partition have ended lately to tell a pace");
  await world.release(await world.inFlight());
  await world.passes();
  const [later] = await world.stage("a");
  await world.route();
  seconds(t, await explain(world, later!));
});

test("how long a partition has gone, by what is left of its count", async (t) => {
  const { pool } = await engine(t, { gates: [] });
  const { rows } = await pool.query(
    `select s.seconds, dispatch_policy_internal._counted_seconds(
       60 / ln(2) * (1 - exp(-s.seconds * ln(2) / 60)), s.seconds, 60) as found
     from unnest(array[0.1, 1, 10, 60, 600, 6000]::float8[]) s (seconds)`,
  );
  for (const { seconds: truly, found } of rows)
    t.true(Math.abs(found / truly - 1) < 1e-3, `${truly} ${found}`);
  for (const [jobs, total] of [
    [10, 10],
    [10, 0],
    [0, 10],
    [20, 10],
    [1e300, 1],
    [1, 1e300],
  ])
    t.deepEqual(
      (
        await pool.query("select dispatch_policy_internal._counted_seconds($1, $2, 60) as found", [
          jobs,
          total,
        ])
      ).rows,
      [{ found: null }],
    );
});

test("jobs that have waited for less than a half-life: the pace is one of theirs, or of some before", async (t) => {
  const { world, last } = await led(t, [concurrency(2)], { jobs: 602 });
  await paced(world, 10, 20);
  const [from, until] = seconds(t, await explain(world, last));
  t.true(from > 40 && until < 80, `all that were admitted were admitted since: ${from} ${until}`);
  await world.table("partitions").set({ admitted_total: 1_000_000 });
  const wide = seconds(t, await explain(world, last));
  t.true(wide[0] < 60 && wide[1] > 200, `what went before is not known: ${wide}`);
});

test("what nobody can know has no estimate, and says why", async (t) => {
  const { world, last } = await led(t, [concurrency(2), throttle(1000)], { jobs: 10 });
  unknown(t, await explain(world, last), TOO_FEW);
  await paced(world, 10, 300);
  seconds(t, await explain(world, last));
  const set = (gate: string, numbers: string, more = "") =>
    world.pool.query(`select dispatch_policy.set_limit('p', '${gate}', '${numbers}'${more})`);
  await set("concurrency", '{"max": 0}');
  unknown(t, await explain(world, last), "a limit of zero lets nothing go");
  await set("concurrency", '{"max": 2}');
  await set("throttle", '{"rate": 0}');
  unknown(t, await explain(world, last), "a limit of zero lets nothing go");
  await set("throttle", '{"rate": 1000}', ", until => now() + interval '1 s'");
  unknown(t, await explain(world, last), /^a limit changes at 20/);
  await world.pool.query("select dispatch_policy.clear_limit('p', 'throttle')");
  await world.pool.query("select dispatch_policy.pause('p')");
  unknown(t, await explain(world, last), "it is paused until resume");
  await world.pool.query("select dispatch_policy.resume('p')");
  seconds(t, await explain(world, last));
  await world.table("partitions").set({ probe_job_id: 1 });
  unknown(t, await explain(world, last), AFTER_HOLD);
});

test("a partition that no tick has seen", async (t) => {
  const world = await engine(t, { gates: [throttle(10, { per: 100 })] });
  const [, id] = await world.stage(["a", "a"]);
  await world.pool.query(LED);
  const it = await explain(world, id!);
  unknown(t, it, "no tick has seen its partition yet");
  t.is(it.place.jobs_before, 1);
});

test("after a hold one job goes first, at its end; when it ends is not known", async (t) => {
  const { world, ids } = await led(t, [throttle(10, { per: 100 })], { jobs: 12 });
  const [later] = await world.stage("a", { runAt: new Date(Date.now() + 100_000) });
  await world.route();
  await world.pool.query(`select dispatch_policy.hold('p', 'a', "for" => '1000 s')`);
  const first = await explain(world, ids[10]!);
  const [from, until] = seconds(t, first);
  t.true(from > 990 && from <= 1000 && until < 1002, `${from} ${until}`);
  t.is(first.estimate.basis, "the end of the hold, and the tokens of its partition");
  for (const id of [ids[11]!, later!]) unknown(t, await explain(world, id), AFTER_HOLD);
  await world.pool.query("select dispatch_policy.pause('p', until => now() + interval '500 s')");
  const paused = await explain(world, ids[10]!);
  t.is(paused.reason, "paused");
  t.true(seconds(t, paused)[0] > 990, "the hold lasts longer");
  await world.pool.query("select dispatch_policy.resume('p')");
  await world.pool.query("select dispatch_policy.hold('p', 'a', \"for\" => '1000 s')");
  const { held_until } = await world.partition("a");
  await world.table("partitions").set({ breaker_until: held_until, held_until: "-infinity" });
  t.is((await explain(world, ids[11]!)).reason, "breaker_open");
  unknown(t, await explain(world, ids[11]!), AFTER_HOLD);
});

test("a stop counts also if the job has a reason of its own", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 11 });
  const [later] = await world.stage("a", { runAt: new Date(Date.now() + 100_000), priority: -1 });
  await world.route();
  await world.pool.query("select dispatch_policy.pause('p')");
  const it = await explain(world, later!);
  t.is(it.reason, "not_due");
  unknown(t, it, "it is paused until resume");
  await world.pool.query("select dispatch_policy.pause('p', until => now() + interval '1000 s')");
  const [from] = seconds(t, await explain(world, later!));
  t.true(from > 990, `${from}`);
  await world.table("staged_jobs").set({ due: false, retry_at: () => "now()" }, { id: last });
  unknown(t, await explain(world, last), /^Graphile Worker did not take it/);
  const { rows } = await world.pool.query(
    "select dispatch_policy.explain(policy => 'p', partition => 'a') as it",
  );
  t.is(rows[0].it.reason, "paused");
  unknown(t, rows[0].it, /^Graphile Worker did not take it/);
});

test("a pause that ends: its end, and the wait from there on", async (t) => {
  const { world, last } = await led(t, [concurrency(2)], { jobs: 602 });
  await paced(world, 10, 300);
  await world.pool.query("select dispatch_policy.pause('p', until => now() + interval '1000 s')");
  const it = await explain(world, last);
  const [from, until] = seconds(t, it);
  t.regex(it.estimate.basis, /^the end of the pause, and the pace of its partition/);
  t.true(from > 1040 && from < 1060 && until > 1055 && until < 1080, `${from} ${until}`);
});

test("a job that is not due starts no earlier", async (t) => {
  const { world } = await led(t, [throttle(10, { per: 100 })], { jobs: 1 });
  const [id] = await world.stage("a", { runAt: new Date(Date.now() + 500_000) });
  await world.route();
  const [from, until] = seconds(t, await explain(world, id!));
  t.true(from > 490 && from <= 500 && until >= from && until < 502, `${from} ${until}`);
});

test("a job that is not due, and gates with room: its time", async (t) => {
  const { world } = await led(t, [concurrency(5)], { jobs: 1 });
  const [id] = await world.stage("a", { runAt: new Date(Date.now() + 500_000) });
  await world.route();
  const it = await explain(world, id!);
  const [from, until] = seconds(t, it);
  t.true(from > 490 && from <= 500 && until >= from && until < 502, `${from} ${until}`);
  t.is(it.estimate.basis, "the time at which it is due");
  await world.table("workers").set({ ended: true });
  await world.table("policies").set({ crontab_ticked_at: () => "now()" });
  const [, later] = seconds(t, await explain(world, id!));
  t.true(later > 550 && later < 562, `a tick each minute: ${later}`);
});

test("a job that is due together with others: those of its time go before", async (t) => {
  const { world } = await led(t, [throttle(10, { per: 100 })], { jobs: 1 });
  const ids = await world.stage(Array(110).fill("a"), { runAt: new Date(Date.now() + 500_000) });
  await world.route();
  const [from, until] = seconds(t, await explain(world, ids.at(-1)!)); // 100 after the first ten, 10 s each
  t.true(from >= 490 && from <= 1500 && until >= 1490 && until < 1550, `${from} ${until}`);
  const first = seconds(t, await explain(world, ids[0]!));
  t.true(first[0] >= 490 && first[1] < 502, `${first}`);
});

test("gates with room for it and for all before: with the next passes", async (t) => {
  for (const gate of [concurrency(5), throttle(5, { per: 1000, scope: "policy" })]) {
    const world = await engine(t, { gates: [gate] });
    const ids = await world.stage(Array(6).fill("a"));
    await world.route();
    await world.pool.query(LED);
    const it = await explain(world, ids[4]!);
    t.true(seconds(t, it)[1] <= 1);
    t.is(it.estimate.basis, "the gates, which have room");
    unknown(t, await explain(world, ids[5]!), TOO_FEW);
  }
});

test("gates with room, but other partitions or passes keep it back: by the pace", async (t) => {
  const world = await engine(t, { gates: [concurrency(50)], batchSize: 9 });
  const [, , id] = await world.stage(["b", "a", "a"]);
  await world.route();
  await world.pool.query(LED);
  const partitions = world.table("partitions");
  await partitions.set({ looked_at: () => "clock_timestamp()", fair_key: 1 });
  seconds(t, await explain(world, id!));
  await partitions.set({ fair_key: 0 }, { key: "b" });
  const it = await explain(world, id!);
  t.is(it.place.partitions_before, 1);
  unknown(t, it, TOO_FEW);
  await partitions.set({ fair_key: 1, denied_reason: "tick_budget" });
  unknown(t, await explain(world, id!), TOO_FEW);
  await partitions.set({ denied_reason: null });
  await world.table("policies").set({ batch_size: 1 });
  unknown(t, await explain(world, id!), TOO_FEW);
  await world.table("policies").set({ half_life: null });
  unknown(t, await explain(world, id!), "without fairness nobody counts how fast its partition goes");
});

test("a policy that is switched off: its gates keep nothing back", async (t) => {
  const { world, last } = await led(t, [concurrency(2), throttle(1, { per: 100 })], { jobs: 4 });
  await world.pool.query("select dispatch_policy.switch_policy('p', false)");
  const it = await explain(world, last);
  t.is(it.reason, null);
  t.true(seconds(t, it)[1] <= 1);
});

test("a shared throttle is no faster than its rate, however fast the partition was", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100, scope: "policy" })], { jobs: 31 });
  await paced(world, 10, 300);
  const [from, until] = seconds(t, await explain(world, last));
  t.true(from > 190 && from < 210 && until >= from, `${from} ${until}`);
});

test("its own throttle keeps it back also while there is a token for the next job", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 }), concurrency(15)], { jobs: 31 });
  await world.table("limiters").set({ tokens: 1.5, refilled_at: () => "now()" }, { gate: "throttle" });
  const it = await explain(world, last);
  t.is(it.reason, null);
  t.regex(it.sentence, /^Its gates let the next job of its partition go. 20 jobs .* go before it. Expected/);
  const [from, until] = seconds(t, it);
  t.true(from > 180 && from <= 195 && until >= 195 && until < 230, `${from} ${until}`);
});

test("a partition that was slower than its own throttle: up to its pace", async (t) => {
  const { world, last } = await led(t, [throttle(10), concurrency(100)], { jobs: 602 });
  const goesInDebt = () =>
    world.table("limiters").set({ tokens: -10, refilled_at: () => "now()" }, { gate: "throttle" });
  await paced(world, 10, 300);
  await goesInDebt();
  const [, steady] = seconds(t, await explain(world, last));
  t.true(steady < 70, `${steady}`);
  await paced(world, 1, 300);
  await goesInDebt();
  const it = await explain(world, last);
  const [from, until] = seconds(t, it);
  t.true(from < 70 && until > 600 && until < 900, `${from} ${until}`);
  t.is(it.estimate.basis, "the tokens of its partition, which was slower lately");
});

test("a limit by context counts for the partitions that have it", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 31 });
  await world.table("partitions").set({ context: { plan: "pro" } });
  const during = (plan: string) =>
    world.pool.query(
      `select dispatch_policy.set_limit('p', 'throttle', '{"rate": 10}', until => now() + interval '9 s', "where" => $1)`,
      [JSON.stringify({ plan })],
    );
  await during("free");
  seconds(t, await explain(world, last));
  await during("pro");
  unknown(t, await explain(world, last), /^a limit changes at [^.]+$/);
});

test("an override that another one hides changes nothing, nor does one that was taken back", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 31 });
  const inTime = (more: string) =>
    world.pool.query(
      `select dispatch_policy.set_limit('p', 'throttle', '{"rate": 10}', until => now() + interval '9 s'${more})`,
    );
  await inTime("");
  unknown(t, await explain(world, last), /^a limit changes at [^.]+$/);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 10}', key => 'a')`);
  seconds(t, await explain(world, last));
  await inTime(", key => 'a'");
  unknown(t, await explain(world, last), /^a limit changes/);
  await world.pool.query("select dispatch_policy.clear_limit('p', 'throttle', key => 'a')");
  await world.pool.query("select dispatch_policy.clear_limit('p', 'throttle')");
  seconds(t, await explain(world, last));
});

test("without a loop: at most a minute later by the crontab, and never if nobody ticks", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 11 });
  const [, until] = seconds(t, await explain(world, last));
  await world.table("workers").set({ ended: true });
  const never = await explain(world, last);
  unknown(t, never, "neither a loop nor the crontab ticks its policy");
  t.regex(
    never.sentence,
    /^Nobody admits its jobs: no live worker runs the loop of this policy, and the crontab's tick does not come\. /,
  );
  await world.table("policies").set({ crontab_ticked_at: () => "now()" });
  const it = await explain(world, last);
  t.true(Math.abs(seconds(t, it)[1] - until - 60) < 5);
  t.regex(it.estimate.basis, /a tick each minute$/);
});

test("a start in Graphile Worker: what is in flight goes first", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 })], { jobs: 11 });
  const [from, until] = seconds(t, await explain(world, last));
  const ahead = (values: object) => world.table("limiters").set({ ...values }, { kind: "ahead" });
  const measured = { in_flight: 100, finished_per_second: 1, sampled_at: () => "now()" };
  await ahead({ ...measured, durations: durations({ t: 60 }) });
  const later = seconds(t, await explain(world, last));
  t.true(later[0] > from + 10 && later[1] > until + 50, `${later}`);
  const released = Number((await world.limiter("ahead")).sampled_released) + 10;
  const before = { sampled_at: () => "now() - interval '10 s'", released };
  await ahead({ ...before, finished_per_second: 0, durations: durations({}) });
  const since = seconds(t, await explain(world, last));
  t.true(since[0] > from + 30, `none in the last measured second, one a second since: ${since}`);
});

test("rates, clocks and histories beyond reason: no error, and nothing absurd", async (t) => {
  const { world, last } = await led(t, [throttle(10, { per: 100 }), concurrency(2)], { jobs: 12 });
  await paced(world, 10, 300);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 1e-9}')`);
  unknown(t, await explain(world, last), "it may take longer than a year");
  await world.pool.query("select dispatch_policy.clear_limit('p', 'throttle')");
  for (const [decayed, total, ago] of [
    [1e300, "9223372036854775807", "-1 day"],
    [3, "0", "100 years"],
    [1e-300, "0", "0"],
    [10, "10", "-1 microsecond"],
  ] as const) {
    const then = () => `now() - interval '${ago}'`;
    await world.table("partitions").set({ decayed_admits: decayed, admitted_total: total, decayed_at: then });
    await world.table("staged_jobs").set({ created_at: then });
    const it = await explain(world, last);
    if (it.estimate) {
      const [from, until] = seconds(t, it);
      t.true(from >= 0 && until >= from && until < 31_536_001, `${from} ${until}`);
    } else t.truthy(it.no_estimate);
  }
});

test("an id that waits for nothing has neither", async (t) => {
  const { world } = await led(t, [], { jobs: 1 });
  const [holder] = await world.inFlight();
  t.like(await explain(world, holder!), { state: "admitted", estimate: null, no_estimate: null });
});
