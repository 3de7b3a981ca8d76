// Random policies and lives of policies, against the engine and against a model of it. A failure prints how to see it
// again: MODEL_SEED and MODEL_PATH. MODEL_CASES=10000 for the long form, MODEL_SEED for other cases.
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import pg from "pg";
import { atLength } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { inside, plantIn } from "../helpers/inside.ts";
import { type Case, type CaseOptions, cases, inWords } from "./cases.ts";
import { MUTANTS, type Mutant, type MutantName, plant } from "./mutants.ts";
import { Difference, runCase, type Target } from "./run.ts";

const CASES = Number(process.env.MODEL_CASES ?? (process.env.TEST_ALL === "1" ? 200 : 120));
/** The same ones each time: they judge the check, not the engine. */
const MUTANT_CASES = { numRuns: 240, seed: 1 };
const STEPS = 14;
const TIMEOUT = 600_000 + CASES * 2000;

/**
 * Up to how many jobs go the small way of admission. The model says exactly what goes, so both ways are the same rule if each
 * case has the same outcome. With 2, the steps of a case go by turns, and find what the other way has left.
 */
const WAYS = [20, 0, 2] as const;
type Way = (typeof WAYS)[number];

/** Databases, one for each way. */
interface Targets {
  /** How many jobs went in the calls that added them. */
  wentAtOnce(): number;
  /** How many passes routed few arrivals. */
  routedFew(): number;
  get(way: Way): Promise<Target>;
}

function targets(t: ExecutionContext, mutant?: MutantName): Targets {
  const made = new Map<Way, Promise<Target>>();
  let went = 0;
  let few = 0;
  async function make(way: Way): Promise<Target> {
    const { url, pool } = await testDatabase(t);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    t.teardown(() => client.end());
    if (way !== 20)
      await plantIn(client, { name: "a way", of: "_few", from: /select \d+/, to: `select ${way}` });
    if (mutant !== undefined) await plant(client, mutant);
    return { url, pool, client, cases: 0, onWentAtOnce: () => void went++, onRoutedFew: () => void few++ };
  }
  return {
    wentAtOnce: () => went,
    routedFew: () => few,
    get(way) {
      const it = made.get(way) ?? make(way);
      made.set(way, it);
      return it;
    },
  };
}

type Outcome = fc.RunDetails<[Case, Way]>;

async function check(
  targets: Targets,
  options: CaseOptions,
  parameters: fc.Parameters<[Case, Way]>,
  ways: readonly Way[] = WAYS,
): Promise<Outcome> {
  const random = cases({ ...options, steps: STEPS });
  return fc.check(
    fc.asyncProperty(random, fc.constantFrom(...ways), async (it, way) =>
      runCase(await targets.get(way), it),
    ),
    parameters,
  );
}

/** What MODEL_SEED and MODEL_PATH name; the same cases each time unless asked for others. */
function again(): fc.Parameters<[Case, Way]> {
  const { MODEL_SEED: seed = "1", MODEL_PATH: path } = process.env;
  // shrinking may take longer than the test may: then it says what it has found
  return {
    seed: Number(seed),
    ...(path && { path }),
    interruptAfterTimeLimit: TIMEOUT * 0.7,
    markInterruptAsFailure: true,
  };
}

function reasonOf({ errorInstance: error }: Outcome): string {
  if (error instanceof Difference) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function inFull(outcome: Outcome): string {
  const { seed, counterexamplePath, counterexample, numShrinks } = outcome;
  return [
    reasonOf(outcome),
    ...(counterexample
      ? [`up to ${counterexample[1]} jobs go the small way`, inWords(counterexample[0])]
      : []),
    `again: MODEL_SEED=${seed} MODEL_PATH=${counterexamplePath} (shrunk ${numShrinks} times)`,
  ].join("\n");
}

test.serial("the engine admits what the model admits", async (t) => {
  t.timeout(TIMEOUT);
  const outcome = await check(targets(t), {}, { numRuns: Math.ceil(CASES * 0.8), ...again() });
  t.false(outcome.failed, inFull(outcome));
});

test.serial("so it does where jobs go in the call that adds them", async (t) => {
  t.timeout(TIMEOUT);
  const it = targets(t);
  const outcome = await check(it, { atOnce: true }, { numRuns: Math.ceil(CASES * 0.4), ...again() });
  t.false(outcome.failed, inFull(outcome));
  t.log(`${it.wentAtOnce()} jobs did`);
  if (process.env.MODEL_PATH === undefined) t.true(it.wentAtOnce() > CASES * 0.05);
});

test.serial("so it does where jobs take several slots", async (t) => {
  t.timeout(TIMEOUT);
  const outcome = await check(targets(t), { slots: true }, { numRuns: Math.ceil(CASES * 0.5), ...again() });
  t.false(outcome.failed, inFull(outcome));
});

test.serial("so it does where passes route few arrivals", async (t) => {
  t.timeout(TIMEOUT);
  const it = targets(t);
  const outcome = await check(it, { known: true }, { numRuns: Math.ceil(CASES * 0.3), ...again() }, [20]);
  t.false(outcome.failed, inFull(outcome));
  t.log(`${it.routedFew()} passes did`);
  if (process.env.MODEL_PATH === undefined) t.true(it.routedFew() > CASES * 0.02);
});

test.serial(
  "where keyed scopes overlap, nothing goes past a limit and nobody waits for nothing",
  async (t) => {
    t.timeout(TIMEOUT);
    const outcome = await check(
      targets(t),
      { overlapping: true },
      { numRuns: Math.ceil(CASES * 0.2), ...again() },
    );
    t.false(outcome.failed, inFull(outcome));
  },
);

/** All that decides what goes next and when, after each step. Ids are left out, and times by the server's clock. */
async function rowsOf({ client }: Target, policy: string, now: Date): Promise<string[]> {
  const rows = await inside(
    client,
    `select format('partition %s: %s', q.key, jsonb_build_object(
         'staged', q.staged, 'due', case when q.due_at <= $2 then 'now' else q.due_at::text end, 'stops', q.stopped_until,
         'blocked', b.gate, 'reason', q.denied_reason, 'until', q.denied_until, 'waiting', q.waiting_since,
         'line', q.in_line_since, 'first', q.goes_first, 'probing', q.probing, 'head', array[q.head_priority::text, q.head_run_at::text],
         'cost', q.head_cost, 'decayed', round(q.decayed_admits::numeric, 9), 'key', round(q.fair_key::numeric, 9),
         'total', q.admitted_total, 'last', q.admitted_at)) as row
     from partitions q
     join policies p on p.id = q.policy_id and p.name = $1
     left join limiters b on b.id = q.blocked_on
     union all
     select format('limiter %s of %s: %s', l.gate, l.scope_key, jsonb_build_object(
         'flight', l.in_flight, 'admitted', l.admitted, 'released', l.released, 'tokens', round(case when _is_window(l.numbers)
           then _window_left(l.spent, l.numbers, $2)
           else _throttle_tokens(l.tokens, l.refilled_at, l.numbers, $2) end::numeric, 9),
         'spent', (select sum(s.cost) from unnest(l.spent) s), 
         'wake', l.wake_at,
         'reserved', l.reserved_until, 'learnt', l.current_max))
     from limiters l
     join policies p on p.id = l.policy_id and p.name = $1
     union all
     select format('in flight: %s of %s, cost %s, %s limiters', dense_rank() over (order by f.staged_id), q.key, f.cost,
       cardinality(f.limiter_ids))
     from in_flight_jobs f
     join policies p on p.id = f.policy_id and p.name = $1
     join partitions q on q.id = f.partition_id
     union all
     select format('freed: %s of %s', l.gate, l.scope_key) from freed f
     join limiters l on l.id = f.limiter_id
     join policies p on p.id = f.policy_id and p.name = $1
     order by 1`,
    [policy, now],
  );
  return rows.map(({ row }: { row: string }) => row);
}

/** Of partitions that are in line since the same moment, either goes first. Here they are in line one after the other. */
async function untie({ client }: Target): Promise<void> {
  await inside(
    client,
    `update partitions q set in_line_since = q.in_line_since + r.n * interval '1 microsecond'
     from (
       select p.id, row_number() over (partition by p.policy_id, p.in_line_since order by p.key, s.keys) - 1 as n
       from partitions p
       cross join lateral (
         -- one that is named twice stands there twice
         select array_agg(l.gate || l.scope_key order by l.gate, l.scope_key) as keys
         from unnest(p.limiter_ids) i (id) join limiters l on l.id = i.id) s
       where p.in_line_since is not null) r
     where q.id = r.id and r.n > 0`,
    [],
  );
}

const SAME_ROWS: readonly CaseOptions[] = [
  {},
  { known: true },
  { byContext: true },
  { calendar: true },
  { held: true, forced: true },
  { expiring: true },
  { deadlines: true },
  { slots: true },
];
for (const [index, options] of SAME_ROWS.entries())
  test.serial(`both ways leave the same rows after each step of a case (${index})`, async (t) => {
    t.timeout(TIMEOUT);
    const it = targets(t);
    const property = fc.asyncProperty(cases({ ...options, steps: STEPS }), async (one) => {
      const seen: string[][][] = [];
      for (const way of [20, 0] as const) {
        const target = await it.get(way);
        const steps: string[][] = [];
        seen.push(steps);
        const after = async (policy: string, now: Date) => {
          steps.push(await rowsOf(target, policy, now));
          await untie(target);
        };
        await runCase(target, one, { passes: false, after });
      }
      const [small, large] = seen as [string[][], string[][]];
      for (const [step, rows] of small.entries()) {
        const other = large[step]!;
        const differs = [
          ...rows.filter((row) => !other.includes(row)).map((row) => `small: ${row}`),
          ...other.filter((row) => !rows.includes(row)).map((row) => `large: ${row}`),
        ];
        if (differs.length > 0) throw new Difference(`after step ${step + 1}:\n${differs.join("\n")}`);
      }
    });
    const { seed, path } = again();
    const parameters = { numRuns: Math.ceil(CASES * 0.1), seed: seed as number, ...(path && { path }) };
    const outcome = (await fc.check(property, parameters)) as unknown as Outcome;
    t.false(outcome.failed, inFull(outcome));
  });

const VARIANTS: readonly (readonly [what: string, options: CaseOptions, share: number])[] = [
  ["jobs of a partition name different keys", { lanes: true, held: true }, 0.4],
  ["an operator admits past the gates", { forced: true }, 0.3],
  ["partitions are held and probed", { held: true }, 0.3],
  ["limits go by the context of partitions, which changes", { byContext: true }, 0.4],
  ["the calendar frees what was spent", { calendar: true }, 0.3],
  ["releases pass slots on", { passing: true }, 0.2],
  ["releases pass slots on, and most do", { turns: true }, 0.5],
  ["jobs go in the call that adds them, in strict order", { atOnce: true, strict: true, forced: true }, 0.2],
  ["jobs go in the call that adds them, by deadlines", { atOnce: true, deadlines: true }, 0.2],
  ["jobs go in the call that adds them, by context", { atOnce: true, byContext: true }, 0.2],
  ["jobs go in the call that adds them, by the calendar", { atOnce: true, calendar: true }, 0.2],
  ["jobs go in the call that adds them, and run costs", { atOnce: true, settling: true, held: true }, 0.2],
  ["partitions keep strict order", { strict: true, forced: true }, 0.3],
  ["jobs go by their deadlines", { deadlines: true, forced: true }, 0.2],
  ["jobs expire", { expiring: true, forced: true }, 0.4],
  ["busy gates postpone jobs", { delaying: true, forced: true }, 0.15],
  ["each worker pool has a share, and requeues jobs", { shares: true, forced: true, expiring: true }, 0.5],
  [
    "jobs take several slots, some past the gates",
    { slots: true, forced: true, held: true, expiring: true },
    0.3,
  ],
  ["jobs take several slots, also of shadow gates", { slots: true, shadow: true, deadlines: true }, 0.2],
  ["shadow gates count and hold nothing back", { shadow: true, forced: true }, 0.4],
  ["runs say what they cost", { settling: true, forced: true }, 0.2],
  [
    "runs say what they cost at shadow gates, and with calendars",
    { settling: true, calendar: true, shadow: true },
    0.1,
  ],
];
for (const [what, options, share] of VARIANTS)
  atLength(`so it does where ${what}`, async (t) => {
    t.timeout(TIMEOUT);
    const outcome = await check(targets(t), options, { numRuns: Math.ceil(CASES * share), ...again() });
    t.false(outcome.failed, inFull(outcome));
  });

for (const name of Object.keys(MUTANTS) as MutantName[]) {
  atLength(`the model check finds: ${name}`, async (t) => {
    t.timeout(TIMEOUT);
    const it = targets(t, name);
    const mutant: Mutant = MUTANTS[name];
    const ways =
      mutant.turns || mutant.atOnce || mutant.passing || mutant.known || mutant.ofFew
        ? [20 as const]
        : [0 as const];
    const { shownBy, shows } = mutant;
    const known = { ...MUTANT_CASES, numRuns: 1, path: String(shownBy - 1), endOnFailure: true };
    let outcome = await check(it, mutant, known, ways);
    if (!outcome.failed) outcome = await check(it, mutant, { ...MUTANT_CASES, endOnFailure: true }, ways);
    t.true(outcome.failed, `not within ${outcome.numRuns} cases`);
    t.log(`case ${Number(outcome.counterexamplePath?.split(":")[0]) + 1}: ${reasonOf(outcome)}`);
    t.regex(reasonOf(outcome), shows);
  });
}
