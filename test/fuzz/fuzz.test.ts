// Random operations at once, on the engine's own functions: a policy's jobs are added, admitted, run, failed, released late
// and twice, and all the while others do to them whatever Graphile Worker and this package let them do. Judged by what runs
// at once, what is charged, what became of each job, and by an independent look at what would run. FUZZ_SECONDS, FUZZ_SEED
// and FUZZ_VARIANT repeat a run; FUZZ_SEEDS runs so many seeds, one after the other.
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { TURN } from "../../scripts/run-tests/turn.ts";
import { isLockTimeout } from "../../src/db/outage.ts";
import { atLength, type Register } from "../helpers/at-length.ts";
import { until } from "../helpers/until.ts";
import { makeJudge } from "./judge.ts";
import { makeOperations } from "./operations.ts";
import { DELAYED, LEFT, LOOK, SEEN } from "./tables.ts";
import { makeWorker } from "./worker.ts";
import { capsOf, chargesOf, makeWorld, ratesOf, VARIANTS, type Variant, type World } from "./world.ts";

/** Of each variant. */
const SECONDS = Number(process.env.FUZZ_SECONDS ?? 3);
const SEEDS = Number(process.env.FUZZ_SEEDS ?? 1);
const SEED = Number(process.env.FUZZ_SEED ?? TURN % 1_000_000);
const ONLY = process.env.FUZZ_VARIANT;
/** Somebody asks for the fuzz: then each variant runs, and else a third of them. */
const IS_LONG = ["FUZZ_SECONDS", "FUZZ_SEED", "FUZZ_SEEDS", "FUZZ_VARIANT"].some((name) => process.env[name]);

/**
 * Which errors come again by themselves. A lock that others hold: of anybody. A deadlock: only of those that docs/engine.md
 * names, which are SQL `admit` and what meets it.
 */
function isBusy({ forced }: Variant, name: string, error: { code?: string }): boolean {
  if (isLockTimeout(error)) return true;
  return error.code === "40P01" && forced === true && /^(force|force again|tick|flush)$/.test(name);
}

/** What set_limit answers when its `until` passed while it waited for the limits of another's open transaction. */
const LATE = "set_limit: until is";

const register: Register = IS_LONG ? test.serial : atLength;
for (let n = 0; n < SEEDS; n++) {
  for (const variant of VARIANTS.filter(({ name }) => ONLY === undefined || name === ONLY)) {
    const name = n === 0 ? variant.name : `${variant.name}, seed ${SEED + n}`;
    register(`${name}: nothing overruns, nothing is lost, nothing is left`, (t) =>
      fuzz(t, variant, SEED + n),
    );
  }
}

async function fuzz(t: ExecutionContext, variant: Variant, seed: number): Promise<void> {
  t.timeout((SECONDS + 180) * 1000);
  t.log(`FUZZ_SEED=${seed} FUZZ_SECONDS=${SECONDS} FUZZ_VARIANT=${JSON.stringify(variant.name)}`);
  const world = await makeWorld(t, variant, seed);
  const judge = makeJudge(capsOf(variant), ratesOf(variant));
  const errors = await play(t, world, judge);
  judge.judgeRates(await chargesOf(world, judge));
  const delayed = await world.it.number(DELAYED);
  t.log(JSON.stringify({ ...judge.ledger.counts, delayed }));
  t.deepEqual(judge.problems.slice(0, 5), []);
  t.deepEqual(judge.ledger.lost().slice(0, 5), []);
  t.deepEqual(errors, {});
  const { rows } = await world.pool.query(
    "select * from dispatch_policy_internal._sweep_partitions(clock_timestamp() + interval '1 second')",
  );
  t.deepEqual(rows, [{ woken: 0, unblocked: 0 }], "a sweep finds nobody who waits in vain");
  t.is(await world.it.wrongCounters(), 0);
  await world.pool.query("select dispatch_policy_internal._sweep_replaced()");
  const parked =
    "select count(*)::int from graphile_worker.jobs where run_at = 'infinity' and attempts < max_attempts";
  t.is(
    await world.it.number(parked),
    0,
    "no parked job is left, whatever became of the newer one of its key",
  );
}

/** Returns the errors that nobody expects, with how often each was seen. */
async function play(t: ExecutionContext, world: World, judge: ReturnType<typeof makeJudge>) {
  const { it, pool, random, variant } = world;
  const counts: Record<string, number> = {};
  const operations = makeOperations(world, judge, counts);
  const workers = ["pool0", "pool1"].map((id) => makeWorker(world, judge, id));
  const [first, second] = workers as [(typeof workers)[0], (typeof workers)[0]];
  const errors: Record<string, number> = {};
  let over = false;

  const attempt = async (name: string, act: () => Promise<unknown>): Promise<void> => {
    try {
      await act();
      counts[name] = (counts[name] ?? 0) + 1;
    } catch (error) {
      const { code = "", message } = error as { code?: string; message: string };
      if (isBusy(variant, name, error as { code?: string }) || message.includes(LATE)) return;
      const seen = `${name}: ${code} ${message}`;
      errors[seen] = (errors[seen] ?? 0) + 1;
    }
  };
  const actor = (name: string, act: () => Promise<unknown>, pauseMs: number) =>
    repeat(() => ({ name, act }), pauseMs);
  const repeat = async (next: () => { name: string; act: () => Promise<unknown> }, pauseMs: number) => {
    while (!over) {
      const { name, act } = next();
      await attempt(name, act);
      await delay(random.between(0, pauseMs));
    }
  };
  const tick = async () => {
    await world.keyJobs();
    const pass = { as: pool, claim: 1 + random.below(9), shard: random.pick(world.shards) };
    // half of them as a tick loop does
    let done = random.chance(0.5) ? await it.admit({ ...pass, routes: true, bounded: true }) : null;
    if (!done || done.routed === null) {
      await it.route(pool, { most: random.pick([10_000, 3]) }); // of a full batch, half are the newest arrivals
      done = await it.admit(pass);
    } else counts.routedInPasses = (counts.routedInPasses ?? 0) + Math.max(done.routed, 0);
    counts.quarantined = (counts.quarantined ?? 0) + done.quarantined;
    if (random.chance(0.7)) await it.readEvents();
  };
  const sweep = async () => {
    const { rows } = await pool.query("select * from dispatch_policy_internal._sweep_in_flight('300 ms')");
    const found = rows.filter(({ job_id }) => job_id !== null);
    await it.release(
      found.map(({ job_id, marked: _, ...rest }) => ({ job: job_id, ...rest })),
      pool,
    );
    await it.readEvents();
    await pool.query("select dispatch_policy_internal._close_groups()");
  };
  /** As a sweep does, one slot after the other. */
  const sweepOverdue = async () => {
    const { rows } = await pool.query("select * from dispatch_policy_internal._sweep_overdue()");
    for (const { job_id, admission, attempt } of rows) {
      judge.excuseAdmission({ id: job_id, admission });
      await pool.query("select dispatch_policy_internal._release_slots($1, $2, $3, 'slotTimeout', 'sweep')", [
        ...[job_id, admission, attempt],
      ]);
      counts["slot timed out"] = (counts["slot timed out"] ?? 0) + 1;
    }
  };
  const forgetKeys = () => pool.query("select dispatch_policy_internal._forget_keys(clock_timestamp())");
  const look = async () => {
    const { rows } = await pool.query(LOOK);
    for (const [what, found] of Object.entries(rows[0]))
      if (found !== null) judge.problems.push(`${what}: ${JSON.stringify(found)}`);
  };

  const actors = [
    actor("add", operations.add, 12),
    actor("add", operations.add, 12),
    actor("tick", tick, 8),
    actor("tick", tick, 15),
    ...[first, first, first, second, second, second].map(({ work }) => actor("work", work, 4)),
    actor("flush", first.flush, 30),
    actor("flush", second.flush, 250),
    repeat(operations.operate, 25),
    repeat(operations.openTransaction, 100),
    repeat(operations.openTransaction, 100),
    actor("sweep", sweep, 800),
    ...(variant.slotTimeout === undefined ? [] : [actor("sweep overdue", sweepOverdue, 30)]),
    ...(variant.uniqueForSeconds === undefined ? [] : [actor("forget keys", forgetKeys, 100)]),
    actor("look", look, 30),
  ];
  const end = performance.now() + SECONDS * 1000;
  await until(
    "time is up, or something is wrong",
    () => performance.now() > end || judge.problems.length > 0,
    {
      withinMs: SECONDS * 1000 + 60_000,
      everyMs: 50,
    },
  );
  over = true;
  await Promise.all(actors);
  t.log(JSON.stringify(counts));

  // nobody adds any more: everything runs to its end
  await operations.calm();
  const left = () => it.number(LEFT);
  await until(
    "everything has run",
    async () => {
      for (const worker of workers) {
        for (let n = 0; n < 8; n++) await attempt("work", worker.work);
        await attempt("flush", worker.flush);
      }
      await attempt("tick", tick);
      if (random.chance(0.05)) await attempt("sweep", sweep);
      return (await left()) === 0 && workers.every((worker) => worker.pending === 0);
    },
    { withinMs: 90_000, everyMs: 1, seen: () => seen(world) },
  );
  return errors;
}

/** What is left, for who looks for the reason. */
async function seen({ pool }: World): Promise<object> {
  const found = Object.entries(SEEN).map(async ([what, text]) => [what, (await pool.query(text)).rows]);
  return Object.fromEntries(await Promise.all(found));
}
