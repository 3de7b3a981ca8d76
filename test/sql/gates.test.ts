// The contract every gate keeps, whatever it counts; then the arithmetic of each.
import test, { type ExecutionContext } from "ava";
import {
  adaptive,
  calendar,
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  MONTH,
  sliding,
  smooth,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { random as randomNumbers, seedOf } from "../helpers/random.ts";

const LIMIT = 7;
/** So slow that no token comes back while a test runs. */
const SLOW = { per: 1e6 };
const REASONS = [
  ...["throttle_empty", "rate_zero", "concurrency_full", "max_zero", "adaptive_concurrency_full"],
  ...["tick_budget", "batch"],
];

interface Subject {
  /** Lets LIMIT jobs through, then none. */
  readonly gate: TestGate;
  readonly zero: TestGate;
}

const GATES: Record<string, Subject> = {
  throttle: { gate: throttle(LIMIT, SLOW), zero: throttle(0, SLOW) },
  "throttle with a burst": {
    gate: throttle(1, { ...SLOW, burst: LIMIT }),
    zero: throttle(-1, { ...SLOW, burst: 5 }),
  },
  "throttle with a sliding window": { gate: sliding(LIMIT, SLOW), zero: sliding(0, SLOW) },
  "throttle with a sliding window over the policy": {
    gate: sliding(LIMIT, { ...SLOW, scope: "policy" }),
    zero: sliding(0, { ...SLOW, scope: "policy" }),
  },
  "throttle with a calendar window": { gate: calendar(LIMIT, MONTH), zero: calendar(0, MONTH) },
  "throttle with a calendar window over the policy": {
    gate: calendar(LIMIT, MONTH, { scope: "policy" }),
    zero: calendar(0, MONTH, { scope: "policy" }),
  },
  "throttle over the policy": {
    gate: throttle(LIMIT, { ...SLOW, scope: "policy" }),
    zero: throttle(0, { ...SLOW, scope: "policy" }),
  },
  concurrency: { gate: concurrency(LIMIT), zero: concurrency(0) },
  "concurrency over a key": {
    gate: concurrency(LIMIT, { scope: () => "key" }),
    zero: concurrency(0, { scope: () => "key" }),
  },
  "concurrency over the policy": {
    gate: concurrency(LIMIT, { scope: "policy" }),
    zero: concurrency(0, { scope: "policy" }),
  },
  "adaptive concurrency": { gate: adaptive(LIMIT), zero: adaptive(LIMIT, { min: 0, max: 0 }) },
  "adaptive concurrency over the policy": {
    gate: adaptive(LIMIT, { scope: "policy" }),
    zero: adaptive(LIMIT, { min: 0, max: 0, scope: "policy" }),
  },
};

for (const [title, { gate, zero }] of Object.entries(GATES)) {
  test(`${title}: never allows more than its limit, nor than the budget`, async (t) => {
    for (const budget of [null, 3, 20]) {
      const { world, at } = await staged(t, 20, { gates: [gate], budget });
      t.is((await world.admit({ now: at(0) })).admitted, Math.min(LIMIT, budget ?? LIMIT));
    }
  });

  test(`${title}: whatever comes and goes, nothing is exceeded and nothing negative`, async (t) => {
    const { below: random } = randomNumbers(seedOf(t));
    const { world, at } = await staged(t, 60, { gates: [gate] });
    let admitted = 0;
    let released = 0;
    for (let step = 0; step < 25; step++) {
      const now = at(random(5) * 100 - 200);
      await world.pool.query("select dispatch_policy_internal._route('p', $1, 1000)", [now]);
      const before = await world.limiter(gate.name);
      admitted += (await world.admit({ now, claim: 1 + random(3) })).admitted;
      const { in_flight, tokens } = await world.limiter(gate.name);
      if (gate.kind === "throttle") {
        t.true(tokens >= 0);
        t.true(admitted <= LIMIT);
        t.is(in_flight, 0, "nothing is held of it");
      } else if (gate.kind === "concurrency") {
        t.true(in_flight <= LIMIT, `${in_flight}`);
        t.is(in_flight, admitted - released);
      } else {
        const cap = before.in_flight === 0 ? Math.max(before.current_max, LIMIT) : before.current_max;
        t.true(in_flight >= 0 && in_flight <= Math.max(cap, before.in_flight), `${in_flight} under ${cap}`);
      }
      const jobs = (await world.inFlight()).slice(0, random(4));
      await world.release(jobs.map((job) => ({ job, ok: true, lagMs: 1 })));
      released += jobs.length;
    }
  });

  test(`${title}: a denial has a reason and a next time`, async (t) => {
    const { world, at } = await staged(t, 20, { gates: [gate] });
    const { denied } = await world.admit({ now: at(0) });
    t.true(Object.keys(denied).length > 0);
    for (const reason of Object.keys(denied)) t.true(REASONS.includes(reason), reason);
    await hasNextTime(t, world, at(0));
  });

  test(`${title}: zero denies without an error, with a reason and a next time`, async (t) => {
    const { world, at } = await staged(t, 5, { gates: [zero] });
    const { admitted, denied } = await world.admit({ now: at(0) });
    t.is(admitted, 0);
    t.deepEqual(Object.keys(denied), [zero.kind === "throttle" ? "rate_zero" : "max_zero"]);
    await hasNextTime(t, world, at(0));
  });

  test(`${title}: the same input gives the same output`, async (t) => {
    const { world, at } = await staged(t, 30, { gates: [gate], budget: 5 });
    const outcomes = [];
    for (let time = 0; time < 3; time++) {
      outcomes.push(
        await undone(world, async (session) => {
          const { claimed, admitted, denied } = await world.admit({ as: session, now: at(0) });
          const { rows } = await session.query(
            "select staged_id, partition from dispatch_policy.in_flight_jobs order by staged_id",
          );
          return { claimed, admitted, denied, rows };
        }),
      );
    }
    t.is(outcomes[0]!.admitted, 5);
    t.deepEqual(outcomes[1], outcomes[0]);
    t.deepEqual(outcomes[2], outcomes[0]);
  });

  test(`${title}: a clock that goes backwards never creates capacity`, async (t) => {
    const { world, at } = await staged(t, 40, { gates: [gate] });
    t.is((await world.admit({ now: at(0) })).admitted, LIMIT);
    for (const back of [-100, -900, -30_000, 0]) {
      await world
        .table("partitions")
        .set({ due_at: "-infinity", denied_until: "-infinity", blocked_on: null });
      t.is((await world.admit({ now: at(back) })).admitted, 0, `${back} ms`);
    }
  });

  test(`${title}: admitting one more never leaves more`, async (t) => {
    const { world, at } = await staged(t, 20, { gates: [gate] });
    let least = Number.POSITIVE_INFINITY;
    for (let budget = 1; budget <= LIMIT + 1; budget++) {
      await world.table("policies").set({ admission_budget: budget });
      const left = await undone(world, async (session) => {
        t.is((await world.admit({ as: session, now: at(0) })).admitted, Math.min(budget, LIMIT));
        const { rows } = await session.query(
          "select round(available) as available from dispatch_policy.limiters where gate = $1",
          [gate.name],
        );
        return rows[0].available as number;
      });
      t.true(left >= 0 && left <= least, `${left} left after ${budget}`);
      t.is(left, LIMIT - Math.min(budget, LIMIT));
      least = left;
    }
  });
}

/** A world with `jobs` jobs staged in one partition, and its clock: `at(0)` is later than all of that. */
async function staged(t: ExecutionContext, jobs: number, options: EngineOptions) {
  const world = await engine(t, options);
  await world.stage(Array(jobs).fill("a"));
  await world.route();
  const base = Date.now() + 60_000;
  return { world, at: (ms: number) => new Date(base + ms) };
}

async function undone<Result>(
  world: Engine,
  act: (session: Awaited<ReturnType<Engine["session"]>>) => Promise<Result>,
): Promise<Result> {
  const session = await world.session();
  await session.query("begin");
  try {
    return await act(session);
  } finally {
    await world.end(session); // which rolls back
  }
}

/** A partition that was denied is looked at again: at a time, or when a limiter it waits for has room. */
async function hasNextTime(t: ExecutionContext, world: Engine, now: Date): Promise<void> {
  const { denied_until, blocked_on, denied_reason } = await world.partition("a");
  t.true(REASONS.includes(denied_reason), denied_reason);
  if (denied_until === Number.POSITIVE_INFINITY) t.not(blocked_on, null);
  else t.true(denied_until > now);
}

test("throttle: fractions of a token are kept", async (t) => {
  const { world, at } = await staged(t, 5, { gates: [throttle(0.5)] });
  const admitted = [];
  for (const ms of [0, 1000, 1990, 2000, 3999, 4000]) {
    admitted.push((await world.admit({ now: at(ms) })).admitted);
  }
  t.deepEqual(admitted, [1, 0, 0, 1, 0, 1]);
});

test("throttle: the next time is the instant of the next token", async (t) => {
  const { world, at } = await staged(t, 5, { gates: [throttle(4, { burst: 1 })] });
  await world.admit({ now: at(0) });
  t.deepEqual((await world.partition("a")).denied_until, at(250));
});

test("throttle: a job dearer than the bucket goes when it is full, and leaves it in debt", async (t) => {
  const world = await engine(t, { gates: [throttle(2)] });
  await world.stage(["a", "a"], { cost: 5 });
  await world.route();
  const base = Date.now() + 60_000;
  const admitAt = async (ms: number) => (await world.admit({ now: new Date(base + ms) })).admitted;
  t.is(await admitAt(0), 1);
  t.is((await world.limiter("throttle")).tokens, -3);
  t.is(await admitAt(2490), 0);
  t.is(await admitAt(2510), 1, "full again: from -3 to 2 at 2 a second");
});

test("throttle: costs add up to what the bucket holds", async (t) => {
  const world = await engine(t, { gates: [throttle(10, SLOW)] });
  await world.stage(Array(9).fill("a"), { cost: 3 });
  await world.route();
  t.is((await world.admit({ now: new Date(Date.now() + 60_000) })).admitted, 3);
});

test("throttle: a rate of zero is looked at again after `per`", async (t) => {
  const { world, at } = await staged(t, 1, { gates: [throttle(0, { per: 30 })] });
  await world.admit({ now: at(0) });
  t.deepEqual((await world.partition("a")).denied_until, at(30_000));
});

test("concurrency: raising the limit takes effect at once, lowering it takes nothing back", async (t) => {
  const { world } = await staged(t, 20, { gates: [concurrency(2)] });
  t.is(await world.passes(), 2);
  await world.stage("a", { gates: [concurrency(5)] });
  t.is(await world.passes(), 3);
  await world.stage("a", { gates: [concurrency(3)] });
  t.is(await world.passes(), 0);
  await world.release((await world.inFlight()).slice(0, 2));
  t.is(await world.passes(), 0, "3 of 3");
  await world.release((await world.inFlight()).slice(0, 1));
  t.is(await world.passes(), 1);
});

test("of several gates the tightest decides, each with a token or a slot less", async (t) => {
  const { world, at } = await staged(t, 20, {
    gates: [throttle(6, SLOW), concurrency(4), throttle(9, { ...SLOW, name: "all", scope: "policy" })],
  });
  t.is((await world.admit({ now: at(0) })).admitted, 4);
  t.is(Math.round((await world.limiter("throttle")).tokens), 2);
  t.is(Math.round((await world.limiter("all")).tokens), 5);
});

test("nobody looks again at a limiter without room for which nobody waits", async (t) => {
  // with a budget the pass goes the large way
  for (const budget of [null, 100]) {
    const { world, at } = await staged(t, 2, {
      gates: [concurrency(1), throttle(1, { ...SLOW, name: "all", scope: "policy" })],
      budget,
    });
    t.is((await world.admit({ now: at(0) })).admitted, 1);
    t.is((await world.partition("a")).denied_reason, "concurrency_full");
    t.is((await world.limiter("all")).wake_at, null);
  }
});

/** Where an adaptive limit of partition `a` stands after one more job finished with its slots all taken. */
async function afterOne(t: ExecutionContext, current: number, job: { ok: boolean | null; lagMs: number }) {
  const { world } = await staged(t, current, { gates: [adaptive(current)] });
  t.is(await world.passes(), current);
  const [first] = await world.inFlight();
  await world.release([{ job: first!, ...job }]);
  return (await world.limiter("adaptive_concurrency")).current_max;
}

test("adaptive: a fast success while the cap was binding adds one", async (t) => {
  t.is(await afterOne(t, 4, { ok: true, lagMs: 1 }), 5);
});

test("adaptive: a failure halves, rounded down, and never below the minimum", async (t) => {
  t.is(await afterOne(t, 10, { ok: false, lagMs: 1 }), 5);
  t.is(await afterOne(t, 5, { ok: false, lagMs: 1 }), 2);
  t.is(await afterOne(t, 1, { ok: false, lagMs: 1 }), 1);
});

test("adaptive: lag over the target takes a twentieth", async (t) => {
  t.is(await afterOne(t, 40, { ok: true, lagMs: 1000 }), 38);
  t.is(await afterOne(t, 40, { ok: true, lagMs: 190 }), 41, "the average, 95, is still under 100");
});

test("adaptive: an end that nobody saw says nothing", async (t) => {
  t.is(await afterOne(t, 4, { ok: null, lagMs: 1000 }), 4);
});

test("adaptive: a success while less than half of the cap is in use adds nothing", async (t) => {
  const { world } = await staged(t, 3, { gates: [adaptive(10)] });
  t.is(await world.passes(), 3);
  await world.release((await world.inFlight()).map((job) => ({ job, ok: true, lagMs: 1 })));
  t.is((await world.limiter("adaptive_concurrency")).current_max, 10);
});

test("adaptive: never above its maximum", async (t) => {
  const { world } = await staged(t, 6, { gates: [adaptive(4, { max: 5 })] });
  await world.passes();
  await world.release((await world.inFlight()).map((job) => ({ job, ok: true, lagMs: 1 })));
  t.is((await world.limiter("adaptive_concurrency")).current_max, 5);
});

test("adaptive: with nothing in flight at least the initial limit, to find out that things are better", async (t) => {
  const { world } = await staged(t, 20, { gates: [adaptive(5)] });
  await world.table("limiters").set({ current_max: 1 }, { kind: "adaptive_concurrency" });
  t.is(await world.passes(), 5);
});

test("adaptive: 100 fast jobs, one at a time, teach nothing about more at once", async (t) => {
  const { world } = await staged(t, 100, { gates: [adaptive(3)] });
  await world.table("policies").set({ admission_budget: 1 });
  await world.pool.query(`do $$
    declare v_job bigint;
    begin
      for i in 1..100 loop
        perform dispatch_policy_internal._route('p', null, 1000);
        perform dispatch_policy_internal._admit('p', 'default', 10, clock_timestamp() + make_interval(mins => 1, secs => i), false);
        select job_id into strict v_job from dispatch_policy.in_flight_jobs;
        perform dispatch_policy_internal._release(json_build_array(json_build_object('job', v_job, 'ok', true, 'lagMs', 1)), null);
        commit;
      end loop;
    end $$`);
  // at most max(initial, 2 × most in flight + 1)
  t.true((await world.limiter("adaptive_concurrency")).current_max <= 3);
});

test("adaptive: 100 slow jobs admitted before the first decrease are one decrease", async (t) => {
  const { world } = await staged(t, 100, { gates: [adaptive(100)] });
  t.is(await world.passes(), 100);
  const jobs = await world.inFlight();
  for (let from = 0; from < 100; from += 10) {
    await world.release(jobs.slice(from, from + 10).map((job) => ({ job, ok: true, lagMs: 5000 })));
  }
  t.is((await world.limiter("adaptive_concurrency")).current_max, 95);
});

/** Four partitions of ten jobs each, or as said, under an adaptive limit of 5 and a budget of 12. */
async function four(t: ExecutionContext, jobs: Record<string, number> = {}): Promise<Engine> {
  const world = await engine(t, { gates: [adaptive(5)], budget: 12 });
  const counts = { A: 10, B: 10, C: 10, D: 10, ...jobs };
  await world.stage(Object.entries(counts).flatMap(([key, count]) => Array(count).fill(key)));
  await world.route();
  return world;
}

async function inFlightOf(world: Engine): Promise<number[]> {
  const counts = await Promise.all(["A", "B", "C", "D"].map((key) => world.inFlight(key)));
  return counts.map((jobs) => jobs.length);
}

test("adaptive and fairness: a budget of 12 gives four partitions three each", async (t) => {
  const world = await four(t);
  await world.admit();
  t.deepEqual(await inFlightOf(world), [3, 3, 3, 3]);
});

test("adaptive and fairness: what a shrunk partition may not use goes to the others", async (t) => {
  const world = await engine(t, { gates: [adaptive(5)], budget: 12 });
  await world.stage("A");
  t.is(await world.passes(), 1);
  await world.table("limiters").set({ current_max: 2 }, { kind: "adaptive_concurrency", scope_key: "A" });
  await world.stage(["A", "B", "C", "D"].flatMap((key) => Array(10).fill(key)));
  t.is(await world.passes(), 12);
  const [a, ...others] = await inFlightOf(world);
  t.is(a, 2, "one more");
  t.deepEqual(others.sort(), [3, 4, 4]);
});

test("adaptive and fairness: what a partition does not need goes to the others", async (t) => {
  const world = await four(t, { A: 2 });
  await world.admit();
  const [a, ...others] = await inFlightOf(world);
  t.is(a, 2);
  t.deepEqual(others.sort(), [3, 3, 4]);
});

test("adaptive and fairness: one partition alone, shrunk to 1, with nothing in flight, starts over", async (t) => {
  const world = await four(t, { B: 0, C: 0, D: 0 });
  await world.table("limiters").set({ current_max: 1 }, { kind: "adaptive_concurrency" });
  await world.admit();
  t.deepEqual(await inFlightOf(world), [5, 0, 0, 0]);
});

for (const [what, spec] of Object.entries({
  "a great weight": { weight: 1e12 },
  "a small weight": { weight: 1e-12 },
  "a great cost": { cost: 1e12 },
})) {
  for (const gates of [
    [concurrency(2, { scope: "policy" })],
    [throttle(2), throttle(5, { name: "all", scope: "policy" })],
  ]) {
    test(`${what} fails no tick under ${gates.map(({ kind, scope }) => `${kind} by ${scope}`).join(" and ")}`, async (t) => {
      const it = await engine(t, { gates });
      await it.stage(["a", "b", "a", "b", "a", "b"], spec);
      await it.stage(["c"]);
      let admitted = 0;
      for (const minute of [0, 1, 2, 3]) {
        await it.route();
        admitted += (await it.admit({ now: new Date(Date.now() + minute * 60_000) })).admitted;
        await it.finish(await it.inFlight());
      }
      t.true(admitted > 0);
    });
  }
}

test("a weight or a cost that would overflow is refused, and nothing is staged", async (t) => {
  const it = await engine(t, { gates: [throttle(2)] });
  await t.throwsAsync(it.stage(["a"], { cost: 1e13 }), { message: /cost_check/ });
  await t.throwsAsync(it.stage(["a"], { weight: 1e13 }), { message: /weight_check/ });
  t.is(await it.staged(), 0);
});

test("a thousand lags of 0 after one that was not fail no release", async (t) => {
  const it = await engine(t, { gates: [adaptive(1200)], batchSize: 1200 });
  await it.stage(Array(1101).fill("a"));
  await it.passes();
  const [first, ...others] = await it.inFlight();
  t.is(others.length, 1100);
  await it.release([{ job: first!, lagMs: 5 }]);
  await it.release(others.map((job) => ({ job, lagMs: 0 })));
  t.deepEqual(await it.inFlight(), []);
  t.is((await it.limiter("adaptive_concurrency")).lag_ewma_ms, 0);
});

test("an average that has underflowed already, and lags that are none, fail no release", async (t) => {
  const it = await engine(t, { gates: [adaptive(10)] });
  const average = async (before: string, lag: string) => {
    await it.table("limiters").set({ lag_ewma_ms: before }, { kind: "adaptive_concurrency" });
    await it.stage("a");
    await it.passes();
    const [job] = await it.inFlight();
    await it.pool.query(
      "select dispatch_policy_internal._release(json_build_array(json_build_object('job', $1::text, 'ok', true, 'lagMs', $2::text)), null)",
      [job, lag],
    );
    t.deepEqual(await it.inFlight(), []);
    return (await it.limiter("adaptive_concurrency")).lag_ewma_ms;
  };
  t.is(await average("5e-324", "0"), 0);
  t.is(await average("10", "20"), 15);
  t.is(await average("10", "-20"), 10, "no time is negative");
  t.is(await average("10", "NaN"), 10);
  t.is(await average("10", "Infinity"), 10);
  t.is(await average("10", "1e308"), 5e14 + 5);
  t.is(await average("Infinity", "0"), 5e14);
});

/** When jobs go, in milliseconds, if each pass comes up to so late after it is due. */
async function goesAt(
  t: ExecutionContext,
  gate: TestGate,
  { seconds, lateMs }: { seconds: number; lateMs: number },
): Promise<number[]> {
  const it = await engine(t, { gates: [gate], halfLifeSeconds: null });
  await it.stage(Array(2 * seconds * gate.numbers.rate! + 10).fill("a"));
  await it.route();
  const late = randomNumbers(7);
  const from = Date.now() + 60_000;
  const starts: number[] = [];
  for (let now = from; now < from + seconds * 1000; ) {
    const { rows } = await it.pool.query(
      "select * from dispatch_policy_internal._route('p', $1, 10000), dispatch_policy_internal._admit('p', null, 50, $1, false)",
      [new Date(now)],
    );
    for (let job = 0; job < rows[0].admitted; job++) starts.push(now - from);
    const [{ next }] = await inside(
      it.pool,
      "select dispatch_policy_internal._next_eligible_at('p', null) as next",
    );
    now = Math.max(Math.ceil(Number(next)), now + 1) + late.below(lateMs);
  }
  return starts;
}

/** How many of these times are in any second at most, its first and last moment among them. */
function mostInASecond(times: readonly number[]): number {
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at <= from + 1000).length));
}

for (const [rate, lateMs, scope] of [
  [20, 21, "partition"],
  [20, 21, "policy"],
  [3, 200, "partition"],
] as const) {
  test(`a smooth throttle of ${rate} a second by ${scope} keeps its rate when passes come up to ${lateMs} ms late, and no second has two more`, async (t) => {
    const seconds = 20;
    const starts = await goesAt(t, smooth(rate, { scope }), { seconds, lateMs });
    t.log(`${starts.length} of ${rate * seconds}, ${mostInASecond(starts)} in a second at most`);
    t.true(starts.length >= rate * seconds * 0.98, `${starts.length} of ${rate * seconds}`);
    t.true(mostInASecond(starts) <= rate + 1, `${mostInASecond(starts)}`);
  });
}

test("after a quiet time a smooth throttle lets one go, and no second has two more than the rate", async (t) => {
  const it = await engine(t, { gates: [smooth(10)] });
  const from = Date.now() + 60_000;
  const starts: number[] = [];
  await it.stage(Array(100).fill("a"));
  await it.route();
  for (let now = from; now < from + 10_000; now += now === from + 2000 ? 3000 : 5) {
    const { admitted } = await it.admit({ now: new Date(now) });
    t.true(admitted <= 1);
    if (admitted > 0) starts.push(now - from);
  }
  t.true(mostInASecond(starts) <= 11, `${mostInASecond(starts)}`);
  t.true(starts.length >= 70 * 0.98, `${starts.length}`);
});
