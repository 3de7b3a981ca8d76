// Two saturated scopes that overlap without nesting: partition `p` needs both, its rivals one each. Without slots kept
// for it, `p` never meets both free at once: 0 of 600.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type TestGate, throttle } from "../../helpers/engine.ts";

const RELEASES = Number(process.env.RACE_RELEASES ?? 120);
const JOBS_OF_P = 50;

/** Rivals of `p` at the account and at the region; each has the other scope to itself. */
const scopeOf =
  (letter: "a" | "r", shared: string) =>
  (partition: string): string =>
    partition.startsWith(letter) || partition.startsWith("p") ? shared : `alone ${partition}`;
const account = concurrency(2, { name: "account", scope: scopeOf("a", "acc") });
const region = concurrency(2, { name: "region", scope: scopeOf("r", "reg") });

const RIVALS = ["a1", "a2", "a3", "r1", "r2", "r3"];

async function saturated(t: ExecutionContext, gates: readonly TestGate[], jobs = RELEASES / 4) {
  const world = await engine(t, { gates });
  for (const rival of RIVALS) await world.stage(Array(jobs).fill(rival));
  await world.passes(4);
  return world;
}

/** Single releases, at account and region in turn, with ticks between. Returns how many jobs of `watched` finished. */
async function releaseInTurn(world: Engine, releases: number, watched = "p"): Promise<number> {
  let finished = 0;
  for (let release = 0; release < releases; release++) {
    const { rows } = await world.pool.query(
      `select job_id, partition from dispatch_policy.in_flight_jobs
       where partition like $1 or partition like 'p%' order by job_id limit 1`,
      [release % 2 ? "a%" : "r%"],
    );
    for (const { job_id, partition } of rows) {
      await world.release([job_id]);
      if (partition === watched) finished++;
    }
    await world.passes(2);
  }
  return finished;
}

/** Two thirds of what is fair among `rivals` partitions at one scope, which every second release frees. */
function aShare(rivals: number): number {
  return Math.min(JOBS_OF_P, Math.floor(((RELEASES / 2 / rivals) * 2) / 3));
}

async function drainsCleanly(t: ExecutionContext, world: Engine): Promise<void> {
  await world.drain();
  t.deepEqual(await world.leftovers(), {
    ...{ staged: 0, arrivals: 0, in_flight: 0, counters: 0, reserved: 0, notes: 0, blocked: 0 },
  });
}

for (const [order, gates] of [
  ["account before region", [account, region]],
  ["region before account", [region, account]],
] as const) {
  test(`a partition that needs two saturated scopes gets its share, ${order}`, async (t) => {
    const world = await saturated(t, gates);
    await world.stage(Array(JOBS_OF_P).fill("p"));
    const finished = await releaseInTurn(world, RELEASES);
    t.log(`${finished} of ${JOBS_OF_P} after ${RELEASES} releases`);
    t.true(finished >= aShare(4), `${finished} of ${JOBS_OF_P}`);
    await drainsCleanly(t, world);
  });
}

test("several partitions that need both scopes all get their share", async (t) => {
  const world = await saturated(t, [account, region]);
  await world.stage(["p1", "p2"].flatMap((key) => Array(JOBS_OF_P).fill(key)));
  await releaseInTurn(world, RELEASES);
  for (const key of ["p1", "p2"]) {
    const left = (await world.staged(key)) + (await world.inFlight(key)).length;
    t.true(JOBS_OF_P - left >= aShare(5), `${key} has ${left} of ${JOBS_OF_P} left`);
  }
  await drainsCleanly(t, world);
});

test("with three overlapping scopes, too", async (t) => {
  const tier = concurrency(2, { name: "tier", scope: scopeOf("a", "tier") });
  const world = await saturated(t, [account, region, tier]);
  await world.stage(Array(JOBS_OF_P).fill("p"));
  const finished = await releaseInTurn(world, RELEASES);
  t.true(finished >= aShare(4), `${finished} of ${JOBS_OF_P}`);
  await drainsCleanly(t, world);
});

for (const [stop, how] of [
  ["paused", "select dispatch_policy.pause('p', partition => 'p')"],
  ["held", "select dispatch_policy.hold('p', 'p', now() + interval '1 hour')"],
  ["removed", "select dispatch_policy.remove(policy => 'p', partition => 'p')"],
] as const) {
  test(`a slot kept for a partition that is ${stop} meanwhile goes to its rivals`, async (t) => {
    const world = await saturated(t, [account, region], 20);
    await world.stage(Array(JOBS_OF_P).fill("p"));
    await world.route();
    t.true(await keepsSlot(world, (await world.partition("p")).id), "a slot is kept");

    await world.pool.query(how);
    // of a removal the engine learns when it looks at the partition next
    await releaseInTurn(world, stop === "removed" ? 4 : 0);
    await world.release(await world.inFlight("p"));
    await world.passes(4);
    t.is((await world.limiter("account", "acc")).in_flight, 2);
    t.is((await world.limiter("region", "reg")).in_flight, 2);
    if (stop !== "removed") await world.pool.query("select dispatch_policy.resume('p', partition => 'p')");
    await drainsCleanly(t, world);
  });
}

test("under fairness by work, a slot kept for another wakes nobody again and again", async (t) => {
  const gates = [concurrency(1, { name: "account", scope: () => "acc" }), region];
  const world = await engine(t, { gates, fairBy: "work" });
  const elsewhere = [concurrency(1, { name: "account", scope: (key) => `of ${key}` }), region];
  await world.stage(["r1", "r2"], { gates: elsewhere });
  await world.passes(2);
  await world.stage("p");
  t.is(await world.passes(), 0, "the region is full");
  const { id, reserved_for, reserved_until } = await world.limiter("account", "acc");
  t.is(reserved_for, (await world.partition("p")).id);
  const rivals = Array.from({ length: 20 }, (_, n) => `a${n}`);
  await world.stage(rivals);
  const now = new Date(reserved_until.getTime() - 1);
  const passAt = async () => {
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [now]);
    return world.admit({ now });
  };
  await passAt();
  // as a reservation before left it
  await world.table("limiters").set({ wake_at: now }, { id });
  await passAt();
  t.is((await passAt()).claimed, 0);
  t.is(await world.table("freed").count(), 0);
});

test("a slot stays kept for a partition while another slot of the scope goes to a rival", async (t) => {
  const world = await engine(t, { gates: [account, region] });
  const elsewhere = [concurrency(1, { name: "account", scope: (key) => `of ${key}` }), region];
  await world.stage(["r1", "r2"], { gates: elsewhere });
  await world.stage("a1");
  t.is(await world.passes(), 3);
  await world.stage("p");
  t.is(await world.passes(), 0, "the region is full");
  const { reserved_for, reserved_until } = await world.limiter("account", "acc");
  t.is(reserved_for, (await world.partition("p")).id);
  await world.finish(await world.inFlight("a1"));
  const now = new Date(reserved_until.getTime() - 1);
  await world.stage(["a2", "a3"], { runAt: new Date(now.getTime() - 5000) });
  const passAt = async () => {
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [now]);
    return (await world.admit({ now })).admitted;
  };
  t.deepEqual([await passAt(), await passAt()], [1, 0]);
  t.is((await world.limiter("account", "acc")).reserved_for, reserved_for);
});

test("a slot kept for a partition goes to a rival at once if its breaker opens", async (t) => {
  const gates = [concurrency(1, { name: "account", scope: () => "acc" }), region];
  const breaker = { failures: 1, withinSeconds: 60, cooldownSeconds: 600 };
  const world = await engine(t, { gates, breaker });
  const elsewhere = [concurrency(1, { name: "account", scope: (key) => `of ${key}` }), region];
  await world.stage(["p", "r"], { gates: elsewhere });
  t.is(await world.passes(), 2);
  const [fails] = (await world.inFlight("p")) as [string];
  await world.stage("p");
  t.is(await world.passes(), 0, "the region is full");
  const { reserved_for } = await world.limiter("account", "acc");
  t.is((await world.table("partitions").one({ id: reserved_for })).key, "p");
  const now = new Date((await world.limiter("account", "acc")).reserved_until.getTime() - 1);
  const route = () => world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [now]);
  await world.stage("a", { runAt: new Date(now.getTime() - 5000) });
  await route();
  t.is((await world.admit({ now })).admitted, 0, "the account's slot is kept");
  await world.pool.query("select graphile_worker.complete_jobs($1)", [[fails]]);
  await world.release([{ job: fails, ok: false }]);
  await route();
  t.is((await world.partition("p")).breaker_reason, "1 failures within 60 s");
  t.is((await world.admit({ now })).admitted, 1, "the rival's");
});

/** Releases until a slot is kept for this partition. */
async function keepsSlot(world: Engine, id: string): Promise<boolean> {
  for (let release = 0; release < 40; release++) {
    await releaseInTurn(world, 1 + (release % 2));
    if ((await world.table("limiters").count({ reserved_for: id })) > 0) return true;
  }
  return false;
}

for (const first of ["account", "rate"] as const) {
  test(`a throttled scope that overlaps a saturated one starves nobody either, ${first} first`, async (t) => {
    const rate = throttle(20, { name: "rate", burst: 1, scope: scopeOf("r", "reg") });
    const world = await engine(t, { gates: first === "rate" ? [rate, account] : [account, rate] });
    for (const rival of RIVALS) await world.stage(Array(300).fill(rival));
    let now = Date.now();
    const passAt = async () => {
      now += 5;
      await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(now)]);
      await world.admit({ now: new Date(now) });
    };
    for (let pass = 0; pass < 4; pass++) await passAt();
    await world.stage(Array(JOBS_OF_P).fill("p"));
    let finished = 0;
    // a release every 35 ms, a token every 50 ms, and a pass every 5 ms: they seldom coincide
    for (let release = 0; release < RELEASES / 2; release++) {
      const { rows } = await world.pool.query(
        `select job_id, partition from dispatch_policy.in_flight_jobs
         where partition like 'a%' or partition = 'p' order by job_id limit 1`,
      );
      for (const { job_id, partition } of rows) {
        await world.release([job_id]);
        if (partition === "p") finished++;
      }
      for (let pass = 0; pass < 7; pass++) await passAt();
    }
    t.log(`${finished} of ${JOBS_OF_P} after ${RELEASES / 2} releases`);
    t.true(finished >= aShare(4), `${finished} of ${JOBS_OF_P}`);
  });
}

for (const [staged, runAt] of [
  ["now", undefined],
  ["with a time of yesterday", "yesterday"],
  ["with a time before all others", "-infinity"],
] as const) {
  test(`a slot is kept no longer than the partition has waited: its job is staged ${staged}`, async (t) => {
    const partOf = (part: 0 | 1) => (partition: string) => partition.split("/")[part] as string;
    const world = await engine(t, {
      gates: [
        concurrency(1, { name: "account", scope: partOf(0) }),
        concurrency(1, { name: "host", scope: partOf(1) }),
      ],
    });
    await world.stage("other/busy host"); // runs for hours
    t.is(await world.passes(2), 1);
    const batch = world.batch(["acme/busy host"]) as { jobs: object[] };
    await world.pool.query(
      `select dispatch_policy_internal._stage(jsonb_set($1, '{0,jobs,0,runAt}', coalesce(to_jsonb($2::timestamptz), 'null'))::json, 'replace')`,
      [JSON.stringify([batch]), runAt],
    );
    let clock = Date.now() + 1000;
    const passAfter = async (seconds: number) => {
      clock += seconds * 1000;
      await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(clock)]);
      return (await world.admit({ now: new Date(clock) })).admitted;
    };
    t.is(await passAfter(0), 0);
    await world.stage("acme/idle host");
    t.is(await passAfter(0), 0, "the account's slot is kept for a second");
    t.is(await passAfter(1.5), 1);
  });
}

test("a slot kept for a partition whose other scope stays full is lent out, and kept again later", async (t) => {
  const slow = concurrency(1, { name: "endpoint", scope: (key) => (key === "p" ? "slow" : key) });
  const one = concurrency(1, { name: "account", scope: () => "acc" });
  const world = await engine(t, { gates: [one, slow] });
  // another account's job takes the endpoint, for hours
  await world.stage("other", {
    gates: [
      { ...one, keyOf: () => "other" },
      { ...slow, keyOf: () => "slow" },
    ],
  });
  t.is(await world.passes(2), 1);
  await world.stage("p");
  await world.stage(["a1", "a2"].flatMap((key) => Array(130).fill(key)));

  // 120 s, in which a job of a1 or a2 that got the slot takes half a second: 240 at most
  let clock = Date.now() + 1000;
  let finished = 0;
  const pass = async () => {
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [new Date(clock)]);
    await world.admit({ now: new Date(clock) });
  };
  for (const end = clock + 120_000; clock < end; clock += 500) {
    const jobs = [...(await world.inFlight("a1")), ...(await world.inFlight("a2"))];
    t.true(jobs.length <= 1);
    await world.release(jobs);
    finished += jobs.length;
    await pass();
    await pass();
  }
  t.log(`${finished} jobs finished`);
  t.true(finished >= 120, `${finished}`);

  await world.release(await world.inFlight("other"));
  for (let round = 0; (await world.inFlight("p")).length === 0; round++) {
    t.true(round < 10, "p runs soon");
    await world.release([...(await world.inFlight("a1")), ...(await world.inFlight("a2"))]);
    clock += 500;
    await pass();
    await pass();
  }
});
