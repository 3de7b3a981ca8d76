// docs/start.md: its examples and its figures are what the engine does.
import { readFile } from "node:fs/promises";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, definePolicy, throttle } from "../../src/index.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";
import { nameOf } from "../helpers/table.ts";
import { tablesOf } from "../helpers/tables.ts";
import { emptyWorld } from "./world.ts";

const PAGE = "docs/start.md";
const tables = await tablesOf(PAGE);
const text = await readFile(new URL(`../../${PAGE}`, import.meta.url), "utf8");

/** Jobs of a key share a limit of 10 a second with those of all keys, or have it for themselves. */
const limited = (name: string, gate: Parameters<typeof throttle>[0]) =>
  definePolicy(name, { partitionBy: "user", gates: [throttle(gate)] });
const tooFine = limited("too_fine", { rate: 10, per: "1 second" });
const shared = limited("shared", { scope: "policy", rate: 10, per: "1 second" });

/** The examples of the page as modules. */
async function examples(t: ExecutionContext) {
  const project = await readersProject(t);
  const files = await writeFiles(project, await blocksOf(PAGE));
  const load = async (name: string) =>
    (await import(path.join(project, name))) as Record<string, AnyPolicy & ReturnType<typeof throttle>>;
  return { files, load };
}

/** A database with the policies. `add` stages jobs, and `tick` runs a pass so many seconds after the first one. */
async function world(t: ExecutionContext, policies: readonly AnyPolicy[]) {
  const { utils, pool } = await emptyWorld(t, policies);
  const start = Date.now() + 600_000; // later than all jobs, also where adding them takes long
  let next = 0;
  return {
    pool,
    async add(identifier: string, payload: object, count: number) {
      await utils.addJobs(Array.from({ length: count }, () => ({ identifier, payload })) as never);
    },
    async tick(policy: string, second: number) {
      const { admitted, nextEligibleAt } = await utils.tick({ policy, now: new Date(start + second * 1000) });
      next = nextEligibleAt ? (nextEligibleAt.getTime() - start) / 1000 : Number.POSITIVE_INFINITY;
      return admitted;
    },
    /** From which second on a pass may admit something, as the last one says. */
    next: () => next,
    async admitted(policy: string, partition: string): Promise<number> {
      const { rows } = await pool.query(
        "select from dispatch_policy.in_flight_jobs where policy = $1 and partition = $2",
        [policy, partition],
      );
      return rows.length;
    },
  };
}

test("a key that is too fine multiplies a limit, and shares are by partition", async (t) => {
  const { files, load } = await examples(t);
  t.deepEqual(files, ["keys.ts", "throttles.ts"]);
  const { callWebhook } = await load("keys.ts");
  const it = await world(t, [callWebhook!, tooFine, shared]);
  for (const policy of ["too_fine", "shared"])
    for (let user = 0; user < 50; user++) await it.add(policy, { user: `u${user}` }, 10);
  const passes: number[] = [];
  while (passes.at(-1) !== 0) passes.push(await it.tick("too_fine", 0));
  t.deepEqual(passes, [500, 0]);
  t.is(await it.tick("shared", 0), 10);
  const { rows } = await it.pool.query(
    "select distinct partition from dispatch_policy.in_flight_jobs where policy = 'shared'",
  );
  t.is(rows.length, 10);
  t.regex(text, /ten jobs of each of 50 users.* admits 500 jobs in its first pass.* admits 10, of ten users/);
});

test("a customer with nine endpoints gets nine places of ten", async (t) => {
  const it = await world(t, [shared]);
  for (let endpoint = 0; endpoint < 10; endpoint++) await it.add("shared", { user: `${endpoint}` }, 50);
  for (let second = 0; second < 40; second++) await it.tick("shared", second);
  t.is(await it.admitted("shared", "9"), 40);
});

test("slots are the rate times the duration", (t) => {
  const seconds = (cell: string) => Number(cell.replace(" s", ""));
  const slots = tables.find(([head]) => head?.at(-1) === "slots")!.slice(1);
  t.true(slots.length > 2);
  for (const [rate, duration, expected] of slots)
    t.is(Number(rate) * seconds(duration!), Number(expected), `${rate} ${duration}`);
});

test("four throttles differ as the table says", async (t) => {
  t.timeout(5 * 60_000);
  const { load } = await examples(t);
  const gates = Object.entries(await load("throttles.ts"));
  const it = await world(
    t,
    gates.map(([name, gate]) => definePolicy(name, { partitionBy: "key", gates: [gate] })),
  );
  const found: Record<string, readonly string[]> = {};
  for (const [name] of gates) {
    await it.add(name, { key: "k" }, 400);
    const times: number[] = [];
    for (let second = 0; second < 300; second++) {
      // of the passes that are to admit nothing, a quarter shows that they do not
      if (second < it.next() && second % 4 > 0) continue;
      const admitted = await it.tick(name, second);
      for (let n = 0; n < admitted; n++) times.push(second);
    }
    const inMinute = times.map((from) => times.filter((at) => at >= from && at < from + 60).length);
    found[`\`${name}\``] = [times.filter((at) => at === 0).length, Math.max(...inMinute), times.length].map(
      String,
    );
  }
  const said = tables.find(([head]) => head?.[0] === "gate" && head.length === 4)!.slice(1);
  t.deepEqual(Object.fromEntries(said.map(([gate, ...figures]) => [gate, figures])), found);
});

test("an adaptive limit goes as the example says", async (t) => {
  const { pool } = await emptyWorld(t, []);
  const numbers = {
    ...{ initial_max: 20, min: 1, max: null, target_lag_ms: 1000, ewma_alpha: 0.5 },
    ...{ failure_decrease_factor: 0.5, overload_decrease_factor: 0.95 },
  };
  let limiter: object = { current_max: 20, numbers };
  /** A round begins with jobs that were admitted after the last decrease. */
  const ends = async (lag: number, succeeded: boolean, isNextRound: boolean) => {
    const { rows } = await pool.query(
      `select to_jsonb(dispatch_policy_internal._adaptive_observe(null,
         jsonb_populate_record(null::${nameOf("limiters")}, $1), $2, $3,
         now() - case when $4 then interval '0' else interval '1 hour' end, 20, now())) as it`,
      [JSON.stringify(limiter), lag, succeeded, isNextRound],
    );
    limiter = rows[0].it;
    return rows[0].it as { lag_ewma_ms: number; current_max: number };
  };
  /** Lag, average, limit, whether it succeeds, and whether it begins a round. */
  const JOBS = [
    [200, 100, 21, true, false],
    [3000, 1550, 19, true, true],
    [3000, 2275, 19, true, false],
    [3000, 2637.5, 18, true, true],
    [0, 1318.75, 18, true, false],
    [0, 659.375, 19, true, false],
    [0, 329.6875, 9, false, true],
  ] as const;
  for (const [n, [lag, average, limit, succeeded, isNextRound]] of JOBS.entries()) {
    const it = await ends(lag, succeeded, isNextRound);
    t.deepEqual([it.lag_ewma_ms, it.current_max], [average, limit], `job ${n + 1}`);
  }
  t.true(text.includes("waited 200, 3000, 3000, 3000, 0 and 0 ms, of which the fourth begins a round,"));
  t.true(text.includes("leave 21, 19, 19, 18, 18 and 19. A failure in the next round leaves 9."));
  limiter = { current_max: 100, numbers };
  let rounds = 0;
  for (let max = 100; max >= 50; rounds++) max = (await ends(1e6, true, true)).current_max;
  t.is(rounds, 13);
  t.true(text.includes(`From 100 it takes ${rounds} late rounds to get below 50.`));
});

test("a target of the lag is too low, right or too high, as the page says", async (t) => {
  const { pool } = await emptyWorld(t, []);
  // below `ahead` it shrinks while all is well, and far above it grows while jobs are late
  const TARGETS = [
    [250, 1, 1],
    [1000, 40, 20],
    [30_000, 40, 50],
  ] as const;
  for (const [target, healthy, late] of TARGETS) {
    const numbers = {
      ...{ initial_max: 20, min: 1, max: null, target_lag_ms: target, ewma_alpha: 0.5 },
      ...{ failure_decrease_factor: 0.5, overload_decrease_factor: 0.95 },
    };
    let limiter = { current_max: 20, numbers };
    const rounds = async (count: number, lag: number) => {
      for (let n = 0; n < count; n++) {
        const { rows } = await pool.query(
          `select to_jsonb(dispatch_policy_internal._adaptive_observe(null,
             jsonb_populate_record(null::${nameOf("limiters")}, $1), $2, true, clock_timestamp(), $3,
             clock_timestamp())) as it`,
          [JSON.stringify(limiter), lag, limiter.current_max],
        );
        limiter = rows[0].it;
      }
      return limiter.current_max;
    };
    t.is(await rounds(20, 500), healthy, `${target}`);
    t.is(await rounds(10, 5000), late, `${target}`);
  }
});

test("a share is the weight among all weights", (t) => {
  const [three, nine] = [3, 9].map((others) => `${(100 * 3) / (3 + others)} %`);
  t.true(
    text.includes(`weight 3 beside one of weight 1 has 75 %, beside three ${three}, beside nine ${nine}.`),
  );
});

test("a newcomer is preferred for as long as the page says", async (t) => {
  t.timeout(5 * 60_000);
  const cases = [
    { name: "shared0", alone: 60, halfLife: 60, lead: 35, formula: 35.1 },
    { name: "shared1", alone: 600, halfLife: 60, lead: 60, formula: 60 },
    { name: "shared2", alone: 600, halfLife: 10, lead: 10, formula: 10 },
  ];
  t.true(text.includes("With a half-life of 60 s that is 35 s after a minute, and 60 s after ten."));
  const gates = [throttle({ scope: "policy", rate: 10, per: "1 second" })];
  const it = await world(
    t,
    cases.map(({ name, halfLife }) =>
      definePolicy(name, { partitionBy: "key", gates, fairness: { halfLife: `${halfLife} seconds` } }),
    ),
  );
  for (const { name, alone, halfLife, lead, formula } of cases) {
    const computed = halfLife * Math.log2(2 - 2 ** (-alone / halfLife));
    t.is(computed.toFixed(1), formula.toFixed(1), name);
    const from = Math.min(alone, 15 * halfLife); // of what was before, nothing is left
    await it.add(name, { key: "loud" }, 10 * (from + 180));
    for (let second = 0; second < from; second++) await it.tick(name, second);
    const before = await it.admitted(name, "loud");
    await it.add(name, { key: "newcomer" }, 10 * 180);
    for (let second = from; second < from + 180; second++) await it.tick(name, second);
    const newcomer = await it.admitted(name, "newcomer");
    const loud = (await it.admitted(name, "loud")) - before;
    t.is(newcomer + loud, 1800, name);
    t.true(Math.abs((newcomer - loud) / 10 - lead) <= 1, `${name}: ${newcomer} and ${loud}`);
  }
});
