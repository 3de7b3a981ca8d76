// How many jobs are admitted ahead of the worker slots.
import test from "ava";
import { type Engine, engine } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { fetchJob } from "../helpers/native.ts";
import { durations, nameOf } from "../helpers/table.ts";

const AHEAD = { kind: "ahead" };

/** How many jobs may be in flight at this time. */
const capAt = async (it: Engine, now: Date): Promise<number> => {
  const text = `select dispatch_policy_internal._ahead_cap(l, $1) as cap from ${nameOf("limiters")} l where kind = 'ahead'`;
  return (await inside(it.pool, text, [now]))[0].cap;
};

test("by default as many jobs are ahead as the workers finish in half a second", async (t) => {
  const it = await engine(t, { gates: [], ahead: 0 });
  await it.table("policies").set({ ahead: null, ahead_seconds: 0.5 });
  const now = new Date();
  interface Pace {
    /** How many jobs the workers run at once. */
    readonly slots?: number;
    /** What they finished in the last second that was measured. */
    readonly finished?: number;
    /** What they have finished in this one, `ms` old. */
    readonly since?: number;
    readonly ms?: number;
    /** How long the jobs of each task run. */
    readonly seconds?: readonly number[];
  }
  const cap = async ({ slots = 10, finished = 0, since = 0, ms = 500, seconds = [] }: Pace) => {
    const alive = "select dispatch_policy_internal._worker_alive('pool', $1, $2, 'host', 1, '1 hour', '0')";
    await it.pool.query(alive, [slots, [it.policy]]);
    const ran = Object.fromEntries(seconds.map((mean, n) => [`task ${n}`, mean]));
    const ends = { finished_per_second: finished, released: 1000 + since, durations: durations(ran) };
    const sample = { sampled_released: 1000, sampled_at: new Date(now.getTime() - ms) };
    await it.table("limiters").set({ ...ends, ...sample }, AHEAD);
    return capAt(it, now);
  };
  t.is(await cap({}), 10, "nothing is known");
  t.is(await cap({ finished: 1234.5 }), 10 + 617);
  t.is(await cap({ finished: 1234.5, seconds: [0.02] }), 10 + 250, "ten slots do 500 a second");
  t.is(await cap({ finished: 30, seconds: [0.5] }), 10 + 10);
  t.is(await cap({ finished: 30, seconds: [0.51] }), 10, "longer than the time");
  t.is(await cap({ finished: 1, seconds: [10] }), 10, "the next end is seconds off");
  t.is(
    await cap({ since: 10, ms: 500, seconds: [10] }),
    10,
    "they ended together, and the next are seconds off",
  );
  t.is(await cap({ since: 180, ms: 500 }), 10 + 180);
  t.is(await cap({ since: 180, ms: 10 }), 10 + 900, "a moment counts as a tenth of a second");
  t.is(await cap({ finished: 1000, since: 1 }), 10 + 500, "the second before says more");
  t.is(await cap({ finished: 1000, seconds: [0] }), 10 + 500);
  t.is(await cap({ finished: 1000, seconds: [0.02, 5] }), 10 + 250, "the shortest task");
  t.is(await cap({ slots: 80, finished: 100, seconds: [0.5] }), 80 + 50);
  t.is(await cap({ slots: 0, finished: 1000, seconds: [0.5] }), 0, "the pool is about to stop");

  await it.table("workers").remove();
  t.is(await capAt(it, now), 100 + 500, "no pool has said how many slots there are");
});

test("with jobs of no length the bound at least doubles with each turn until it is at the full pace", async (t) => {
  const it = await engine(t, { gates: [], ahead: { seconds: 0.5 } });
  await it.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 10, $1, 'host', 1, '1 hour', '0')",
    [[it.policy]],
  );
  const start = Date.now();
  const { released } = await it.limiter("ahead");
  await it.table("limiters").set({ sampled_at: new Date(start), sampled_released: released }, AHEAD);
  const caps: number[] = [];
  for (let turn = 0; turn < 5; turn++) {
    const cap = await capAt(it, new Date(start + turn * 20));
    await it.table("limiters").set({ released: (its) => `${its} + ${cap}` }, AHEAD);
    caps.push(cap);
  }
  t.log(caps.join(", "));
  t.is(caps[0], 10);
  caps.slice(1).forEach((cap, n) => {
    t.true(cap >= 2 * (caps[n] as number), `${caps}`);
  });
  t.true((caps.at(-1) as number) >= 2000, "a tenth of a second, for a pace of thousands a second");
});

test("how long a task's jobs run is a moving mean of about fifty", async (t) => {
  const it = await engine(t, { gates: [] });
  const end = async (durations: readonly (number | null)[], task = it.policy) => {
    await it.stage(durations.map(() => "a"));
    await it.passes();
    const jobs = await it.inFlight();
    t.is(jobs.length, durations.length);
    await it.release(jobs.map((job, n) => ({ job, task, ok: true, durationMs: durations[n] ?? null })));
  };
  const mean = async () => (await it.limiter("ahead")).durations[0]?.seconds;
  await end([null]);
  t.falsy(await mean());
  await end([100]);
  t.is(await mean(), 0.1);
  await end([1350]);
  t.is(await mean(), 0.125, "a fiftieth of the difference");
  await end(Array(50).fill(0));
  t.true(Math.abs((await mean()) - 0.125 * 0.98 ** 50) < 1e-9);
  const before = await mean();
  await end([1000], "a task of another policy");
  t.is(await mean(), before);
  await it.stage("a");
  await it.passes();
  const [failed] = await it.inFlight();
  await it.release([{ job: failed as string, task: it.policy, ok: false, durationMs: 0 } as never]);
  t.is(await mean(), before, "it failed");
});

/** A worker pool of ten slots that runs short jobs, and long ones by a task of their own. */
async function mixed(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, { gates: [], ahead: { seconds: 0.25 }, otherTasks: ["long"], batchSize: 1000 });
  await pool(it, "pool", [it.policy, "long"]);
  return it;
}

async function pool(it: Engine, name: string, tasks: readonly string[]): Promise<void> {
  await it.pool.query("select dispatch_policy_internal._worker_alive($1, 10, $2, 'host', 1, '1 hour', '0')", [
    name,
    tasks,
  ]);
}

/** Ten slots finish so many that 100 short jobs are ahead. It is set anew for each pass, however long a test takes. */
async function passes(
  it: Engine,
  count = 2,
  seconds: Record<string, number> = { [it.policy]: 0.02, long: 30 },
): Promise<number> {
  let admitted = 0;
  for (let n = 0; n < count; n++) {
    await it.route();
    const { released } = await it.limiter("ahead");
    const sample = {
      sampled_at: () => "date_trunc('milliseconds', clock_timestamp())",
      sampled_released: released,
    };
    const ends = { finished_per_second: 400, durations: durations(seconds) };
    await it.table("limiters").set({ ...sample, ...ends }, AHEAD);
    const { sampled_at: now } = await it.limiter("ahead");
    admitted += (await it.admit({ now })).admitted;
  }
  return admitted;
}

const ofTask = (it: Engine, task: string) =>
  it.number("select count(*)::int from graphile_worker.jobs where task_identifier = $1", [task]);

test("short jobs are ahead by hundreds, long ones of the same policy by none", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(200).fill("a"));
  t.is(await passes(it), 10 + 100);

  const other = await mixed(t);
  await other.stage(Array(200).fill("a"), { task: "long" });
  t.is(await passes(other), 10);
  t.is((await other.partition("a")).denied_reason, "ahead_full");
});

/** A pass says for a moment that a long job waits. This makes that moment long, or ends it. */
const longWaits = (it: Engine, until: "infinity" | "-infinity") =>
  it
    .table("limiters")
    .set({ long_waits_until: until }, { long_waits_until: (its) => `${its} > '-infinity'` });

test("a long job waits for a slot, and no short one overtakes it", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(30).fill("a"));
  t.is(await passes(it, 1), 30);
  await it.stage("b", { task: "long" });
  await it.stage(Array(50).fill("b"));
  t.is(await passes(it), 0);
  t.is((await it.partition("b")).denied_reason, "ahead_full");
  t.is((await it.partition("b")).blocked_on, (await it.limiter("ahead")).id);

  const [first] = await it.inFlight();
  await it.finish([first as string]);
  t.is(await passes(it), 0, "no slot is free");
  await it.finish((await it.inFlight()).slice(0, 19));
  t.is(await passes(it), 0, "ten run");
  await longWaits(it, "infinity");
  await it.finish((await it.inFlight()).slice(0, 1));
  t.is(await passes(it, 1), 1, "it goes");
  t.is(await ofTask(it, "long"), 1);
  await longWaits(it, "-infinity");
  t.true((await passes(it)) > 1, "and the short ones behind it");
});

test("while a long job waits, no other claim and no other shard has jobs ahead", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(30).fill("a"));
  t.is(await passes(it, 1), 30);
  await it.stage("b", { task: "long" });
  t.is(await passes(it, 1), 0);
  await longWaits(it, "infinity");
  await it.stage(Array(50).fill("c"), { shard: "other" });
  await it.route();
  t.is((await it.admit({ shard: "other" })).admitted, 0);
  t.is((await it.partition("c")).denied_reason, "ahead_full");
  await longWaits(it, "-infinity");
  await it.pool.query("select from dispatch_policy.remove(policy => $1, partition => 'b')", [it.policy]);
  t.true((await it.admit({ shard: "other" })).admitted > 0, "nobody says any more that it waits");
});

test("a task of which no job has ended counts as long", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(100).fill("a"), { task: "long" });
  t.is(await passes(it, 2, { [it.policy]: 0.02 }), 10);
});

/** No short job has ended yet. */
const LONG = { long: 30 };

test("where pools differ in tasks, a long job stops nobody, and jobs whose task nobody runs keep nobody out", async (t) => {
  const it = await mixed(t);
  await pool(it, "other", ["long"]);
  await it.stage(Array(200).fill("a"), { task: "long" });
  t.is(await passes(it, 2, LONG), 20);
  await olderBy(it, "1 minute");
  t.is(await passes(it, 2, LONG), 20, "none of the task runs");
  await fetchJob(it, (await it.inFlight())[0]!, "x");
  await olderBy(it, "1 minute");
  t.is(await passes(it, 2, LONG), 0, "one runs: the others wait for its slot");
});

/** As if what is in flight had been admitted so much earlier. */
const olderBy = (it: Engine, time: string) =>
  it.table("in_flight_jobs").set({ admitted_at: (its) => `${its} - interval '${time}'` });

test("before a long job, short ones go", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(30).fill("a"));
  await it.stage("a", { task: "long" });
  await it.stage(Array(30).fill("a"));
  t.is(await passes(it), 30);
  t.is(await ofTask(it, "long"), 0);
});

test("a number of jobs ahead counts for long ones too", async (t) => {
  const it = await mixed(t);
  await it.table("policies").set({ ahead: 20, ahead_seconds: null });
  await it.stage(Array(100).fill("a"), { task: "long" });
  t.is(await passes(it), 30);
});

test("jobs behind one of their named queue do not fill the room of those that could run", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(10).fill("a"), { task: "long", queueName: "q" });
  t.is(await passes(it, 1), 10);
  await it.stage(Array(200).fill("b"), { task: "long" });
  t.is(await passes(it), 9, "nine stand behind the first");
  t.is(await passes(it), 0);
});

test("jobs that nobody takes by their flags do not fill the room of those that could run", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(10).fill("a"), { task: "long", flags: ["slow"] });
  t.is(await passes(it, 1), 10);
  await it.stage(Array(200).fill("b"), { task: "long" });
  t.is(await passes(it), 0, "they may be about to start");
  await olderBy(it, "1 minute");
  t.is(await passes(it), 10);
});

test("one job of a named queue brings no jobs ahead of a policy's long ones", async (t) => {
  const it = await mixed(t);
  await it.stage("a", { task: "long", queueName: "q" });
  await it.stage(Array(200).fill("b"), { task: "long" });
  t.is(await passes(it, 3), 10);
});

test("at most a hundred jobs that wait elsewhere count", async (t) => {
  const it = await mixed(t);
  await it.stage(Array(400).fill("a"), { task: "long", queueName: "q" });
  t.is(await passes(it, 15), 10 + 100);
});

test("jobs of a pass start by their virtual times, and the first of a new partition before those ahead", async (t) => {
  const it = await engine(t, { gates: [], batchSize: 1000 });
  await it.stage(Array(4).fill("loud")); // the first of these was new itself
  t.is(await it.passes(), 4);
  // not a second ago, however slow the machine is
  await it.table("partitions").set({ admitted_at: "infinity" });
  await it.stage(Array(3).fill("loud"));
  await it.stage(["new", "new", "new"]);
  t.is(await it.passes(), 6);
  const { rows } = await it.pool.query(
    `select f.partition as key from graphile_worker.jobs j
     join dispatch_policy.in_flight_jobs f on f.job_id = j.id
     order by j.priority, j.run_at, j.id`,
  );
  t.is(rows.map(({ key }) => (key === "new" ? "n" : "l")).join(""), "lnlllnnlll");
});
