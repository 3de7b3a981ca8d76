// Random policies and lives of policies, against the engine and against a model of it. A failure prints how to see it
// again: MODEL_SEED and MODEL_PATH. MODEL_CASES=10000 for the long form, MODEL_SEED for other cases.
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import pg from "pg";
import { testDatabase } from "../helpers/database.ts";
import { sampled } from "../helpers/sampled.ts";
import { type Case, type CaseOptions, cases, inWords } from "./cases.ts";
import { MUTANTS, type Mutant, type MutantName, plant } from "./mutants.ts";
import { Difference, runCase, type Target } from "./run.ts";

const CASES = Number(process.env.MODEL_CASES ?? 200);
/** The same ones each time: they judge the check, not the engine. */
const MUTANT_CASES = { numRuns: 240, seed: 1 };
const STEPS = 14;
const TIMEOUT = 600_000 + CASES * 2000;

async function target(t: ExecutionContext): Promise<Target> {
  const { url, pool } = await testDatabase(t);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  return { url, pool, client, cases: 0, wentAtOnce: 0 };
}

type Outcome = fc.RunDetails<[Case]>;

async function check(
  target: Target,
  options: CaseOptions,
  parameters: fc.Parameters<[Case]>,
): Promise<Outcome> {
  const { overlapping = false } = options;
  const random = cases({ ...options, steps: STEPS });
  return fc.check(
    fc.asyncProperty(random, (it) => runCase(target, it, { overlapping })),
    parameters,
  );
}

/** What MODEL_SEED and MODEL_PATH name; the same cases each time unless asked for others. */
function again(): fc.Parameters<[Case]> {
  const { MODEL_SEED: seed = "1", MODEL_PATH: path } = process.env;
  return { seed: Number(seed), ...(path && { path }) };
}

function reasonOf({ errorInstance: error }: Outcome): string {
  if (error instanceof Difference) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function inFull(outcome: Outcome): string {
  const { seed, counterexamplePath, counterexample, numShrinks } = outcome;
  return [
    reasonOf(outcome),
    ...(counterexample ? [inWords(counterexample[0])] : []),
    `again: MODEL_SEED=${seed} MODEL_PATH=${counterexamplePath} (shrunk ${numShrinks} times)`,
  ].join("\n");
}

test.serial("the engine admits what the model admits", async (t) => {
  t.timeout(TIMEOUT);
  const outcome = await check(await target(t), {}, { numRuns: Math.ceil(CASES * 0.8), ...again() });
  t.false(outcome.failed, inFull(outcome));
});

test.serial("so it does where jobs go in the call that adds them", async (t) => {
  t.timeout(TIMEOUT);
  const it = await target(t);
  const outcome = await check(it, { atOnce: true }, { numRuns: Math.ceil(CASES * 0.4), ...again() });
  t.false(outcome.failed, inFull(outcome));
  t.log(`${it.wentAtOnce} jobs did`);
  if (process.env.MODEL_PATH === undefined) t.true(it.wentAtOnce > CASES * 0.1);
});

test.serial(
  "where keyed scopes overlap, nothing goes past a limit and nobody waits for nothing",
  async (t) => {
    t.timeout(TIMEOUT);
    const outcome = await check(
      await target(t),
      { overlapping: true },
      { numRuns: Math.ceil(CASES * 0.2), ...again() },
    );
    t.false(outcome.failed, inFull(outcome));
  },
);

const VARIANTS: readonly (readonly [what: string, options: CaseOptions, share: number])[] = [
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
  ["shadow gates count and hold nothing back", { shadow: true, forced: true }, 0.4],
  ["runs say what they cost", { settling: true, forced: true }, 0.2],
  [
    "runs say what they cost at shadow gates, and with calendars",
    { settling: true, calendar: true, shadow: true },
    0.1,
  ],
];
const taken = sampled(2);
for (const [what, options, share] of VARIANTS)
  taken(`so it does where ${what}`, async (t) => {
    t.timeout(TIMEOUT);
    const outcome = await check(await target(t), options, { numRuns: Math.ceil(CASES * share), ...again() });
    t.false(outcome.failed, inFull(outcome));
  });

const planted = sampled(2);
for (const name of Object.keys(MUTANTS) as MutantName[]) {
  planted(`the model check finds: ${name}`, async (t) => {
    t.timeout(TIMEOUT);
    const it = await target(t);
    await plant(it.client, name);
    const mutant: Mutant = MUTANTS[name];
    const { shownBy, shows } = mutant;
    const known = { ...MUTANT_CASES, numRuns: 1, path: String(shownBy - 1), endOnFailure: true };
    let outcome = await check(it, mutant, known);
    if (!outcome.failed) outcome = await check(it, mutant, { ...MUTANT_CASES, endOnFailure: true });
    t.true(outcome.failed, `not within ${outcome.numRuns} cases`);
    t.log(`case ${Number(outcome.counterexamplePath?.split(":")[0]) + 1}: ${reasonOf(outcome)}`);
    t.regex(reasonOf(outcome), shows);
  });
}
