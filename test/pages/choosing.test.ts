// docs/choosing.md: its examples and its tables are what the engine does.
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, definePolicy, throttle } from "../../src/index.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";
import { nameOf } from "../helpers/table.ts";
import { tablesOf } from "../helpers/tables.ts";
import { emptyWorld } from "./world.ts";

const PAGE = "docs/choosing.md";
const tables = await tablesOf(PAGE);

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
  const { callWebhook, tooFine, shared } = await load("keys.ts");
  const it = await world(t, [callWebhook!, tooFine!, shared!]);
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
});

test("a customer with nine endpoints gets nine places of ten", async (t) => {
  const { load } = await examples(t);
  const it = await world(t, [(await load("keys.ts")).shared!]);
  for (let endpoint = 0; endpoint < 10; endpoint++) await it.add("shared", { user: `${endpoint}` }, 50);
  for (let second = 0; second < 40; second++) await it.tick("shared", second);
  t.is(await it.admitted("shared", "9"), 40);
});

test("slots are the rate times the duration, and the other way round", (t) => {
  const seconds = (text: string) => Number(text.replace(" s", ""));
  const slots = tables.find(([head]) => head?.at(-1) === "slots")!.slice(1);
  t.true(slots.length > 2);
  for (const [rate, duration, expected] of slots)
    t.is(Number(rate) * seconds(duration!), Number(expected), `${rate} ${duration}`);
  const most = tables.find(([head]) => head?.[1] === "the most jobs a second")!.slice(1);
  t.true(most.length > 2);
  for (const [duration, expected] of most) t.is(5 / seconds(duration!), Number(expected), duration);
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

test("an adaptive limit goes as the table says", async (t) => {
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
  const rows = tables.find(([head]) => head?.[0] === "job")!.slice(2);
  t.is(rows.length, 7);
  for (const [job, lag, average, limit] of rows) {
    const isFirstLate = lag === "3000" && !job!.includes("round");
    const it = await ends(Number(lag), !job!.startsWith("fails"), job!.includes("next") || isFirstLate);
    t.deepEqual([it.lag_ewma_ms, it.current_max], [Number(average), Number(limit)], job);
  }
  limiter = { current_max: 100, numbers };
  let rounds = 0;
  for (let max = 100; max >= 50; rounds++) max = (await ends(1e6, true, true)).current_max;
  t.is(rounds, 13);
});

test("a target of the lag is too low, right or too high, as the table says", async (t) => {
  const { pool } = await emptyWorld(t, []);
  const rows = tables.find(([head]) => head?.[0] === "`targetLagMs`")!.slice(1);
  t.is(rows.length, 3);
  for (const [target, healthy, late] of rows) {
    const numbers = {
      ...{ initial_max: 20, min: 1, max: null, target_lag_ms: Number(target), ewma_alpha: 0.5 },
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
    t.is(await rounds(20, 500), Number(healthy), target);
    t.is(await rounds(10, 5000), Number(late), target);
  }
});

test("a share is the weight among all weights, and an admission halves with each half-life", (t) => {
  const shares = tables.find(([head]) => head?.[0] === "busy partitions")!.slice(1);
  t.deepEqual(
    shares.map(([, share]) => share),
    [1, 3, 9].map((others) => `${(100 * 3) / (3 + others)} %`),
  );
  const [[, ...lives], [, ...left]] = tables.find(([head]) => head?.[0] === "half-lives")! as [
    string[],
    string[],
  ];
  t.deepEqual(
    left,
    lives.map((n) => `${Number((100 / 2 ** Number(n)).toFixed(1))} %`),
  );
});

test("a newcomer is preferred for as long as the table says", async (t) => {
  t.timeout(5 * 60_000);
  const rows = tables.find(([head]) => head?.[1] === "`halfLife`")!.slice(1);
  t.is(rows.length, 3);
  const seconds = (text: string) => Number(text.replace(" s", ""));
  const cases = rows.map(([alone, halfLife, lead, formula], n) => ({
    ...{ name: `shared${n}`, alone: seconds(alone!), halfLife: seconds(halfLife!) },
    ...{ lead: Number(lead), formula: Number(formula) },
  }));
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
