// What stalls bad engines: one slot over everything, many partitions that drain and sleep, scopes that overlap. An
// engine that stalls for ever passed a stress test with roomier limits three times of three. HARD_JOBS for more.
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine } from "../helpers/engine.ts";
import { type Random, random as randomNumbers, seedOf } from "../helpers/random.ts";

const JOBS = Number(process.env.HARD_JOBS ?? 200);
const PARTITIONS = Math.ceil(JOBS / 12);
const STALLED_AFTER_MS = 10_000;
const MINUTES = 60_000;

const number = (partition: string) => Number(partition.slice(1));
const partitionOf = (random: Random) => `k${random.below(PARTITIONS)}`;

async function world(t: ExecutionContext, cap: number): Promise<Engine> {
  t.timeout((2 + JOBS / 1000) * MINUTES);
  const wide = Math.max(cap, 2);
  return engine(t, {
    gates: [
      concurrency(2),
      concurrency(wide, { name: "account", scope: (key) => `${number(key) % 7}` }),
      concurrency(wide, { name: "region", scope: (key) => `${number(key) % 5}` }),
      concurrency(cap, { name: "all", scope: "policy" }),
    ],
  });
}

for (const { cap, pauses } of [
  { cap: 1, pauses: false },
  { cap: 1, pauses: true },
  { cap: 6, pauses: true },
]) {
  const title = `at cap ${cap}${pauses ? ", with partitions paused and resumed," : ""} nothing stalls, overruns or leaks`;

  test.serial(title, async (t) => {
    const random = randomNumbers(seedOf(t));
    const it = await world(t, cap);
    const seen = { overruns: 0, passes: 0, visits: 0, admitted: 0, failures: {} as Record<string, number> };
    const end = new AbortController();
    const repeat = async (act: () => Promise<unknown>) => {
      while (!end.signal.aborted) {
        await act().catch((error) => {
          const failure = `${error.code} ${error.message}, ${error.where ?? ""}`;
          seen.failures[failure] = (seen.failures[failure] ?? 0) + 1;
        });
      }
    };
    const tick = async () => {
      await it.route();
      const { claimed, admitted } = await it.admit({ claim: 20 });
      seen.passes++;
      seen.visits += claimed;
      seen.admitted += admitted;
      if (admitted === 0) await delay(2);
    };
    const release = async () => {
      const jobs = await it.inFlight();
      if (jobs.length > 0) await it.finish(shuffled(random, jobs).slice(0, 8));
      else await delay(1);
    };
    const watch = async () => {
      const { rows } =
        await it.pool.query(`select count(*)::int as jobs, count(distinct partition)::int as partitions,
        coalesce(max(count(*)) over (), 0)::int as most from dispatch_policy.in_flight_jobs group by partition`);
      const jobs = rows.reduce((sum, row) => sum + row.jobs, 0);
      if (jobs > cap || (rows[0]?.most ?? 0) > 2) seen.overruns++;
      await delay(3);
    };
    const pause = async () => {
      const partition = partitionOf(random);
      await it.pool.query("select dispatch_policy.pause('p', partition => $1)", [partition]);
      await delay(20 + random.below(60));
      await it.pool.query("select dispatch_policy.resume('p', partition => $1)", [partition]);
    };
    const background = [tick, tick, tick, release, release, watch, ...(pauses ? [pause, pause] : [])];
    const running = background.map(repeat);

    const started = Date.now();
    await Promise.all([stageSome(it, random, JOBS / 2), stageSome(it, random, JOBS / 2)]);
    await untilDone(it);
    const ms = Date.now() - started;
    end.abort();
    await Promise.all(running);

    const visits = (seen.visits / seen.admitted).toFixed(1);
    t.log(`${JOBS} jobs in ${ms} ms, ${seen.passes} passes, ${visits} visits a job`);
    t.deepEqual(seen.failures, {});
    t.is(seen.overruns, 0);
    t.is(seen.admitted, JOBS, "each once");
    const { notes: _, ...left } = await it.leftovers();
    t.deepEqual(left, { staged: 0, arrivals: 0, in_flight: 0, counters: 0, reserved: 0, blocked: 0 });
  });
}

function shuffled<T>(random: Random, list: readonly T[]): T[] {
  return list
    .map((one) => ({ one, place: random.unit() }))
    .sort((a, b) => a.place - b.place)
    .map(({ one }) => one);
}

/** Stages `jobs` jobs in transactions of up to 30, some of which stay open for a while. */
async function stageSome(it: Engine, random: Random, jobs: number): Promise<void> {
  for (let left = Math.ceil(jobs); left > 0; ) {
    const keys = Array.from({ length: Math.min(left, 1 + random.below(30)) }, () => partitionOf(random));
    left -= keys.length;
    const app = await it.pool.connect();
    try {
      await app.query("begin");
      await it.stage(keys, { as: app });
      if (random.chance(0.1)) await delay(30);
      await app.query("commit");
    } finally {
      app.release();
    }
  }
}

/** Resolves when every job ran; fails when nothing moves any more although nothing is in flight. */
async function untilDone(it: Engine): Promise<void> {
  let least = Number.POSITIVE_INFINITY;
  let progressAt = Date.now();
  for (;;) {
    const staged = await it.staged();
    const inFlight = (await it.inFlight()).length;
    if (staged + inFlight === 0) return;
    if (staged + inFlight < least) {
      least = staged + inFlight;
      progressAt = Date.now();
    }
    if (Date.now() - progressAt > STALLED_AFTER_MS)
      throw new Error(`Stalled: ${staged} staged, ${inFlight} in flight, no progress`);
    await delay(50);
  }
}
