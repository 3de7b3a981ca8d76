// Random policies and lives of policies, against the engine and against a model of it. A failure prints how to see it
// again: MODEL_SEED and MODEL_PATH. MODEL_CASES=10000 for the long form.
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import pg from "pg";
import { testDatabase } from "../helpers/database.ts";
import { type Case, cases, inWords } from "./cases.ts";
import { runCase, type Target } from "./run.ts";

const CASES = Number(process.env.MODEL_CASES ?? 300);
const STEPS = 14;

async function target(t: ExecutionContext): Promise<Target> {
  const { url, pool } = await testDatabase(t);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  return { url, pool, client, cases: 0 };
}

function replayed(): { seed?: number; path?: string } {
  const { MODEL_SEED: seed, MODEL_PATH: path } = process.env;
  return { ...(seed && { seed: Number(seed) }), ...(path && { path }) };
}

async function check(
  t: ExecutionContext,
  { overlapping, count }: { overlapping: boolean; count: number },
): Promise<fc.RunDetails<[Case]>> {
  const it = await target(t);
  const property = fc.asyncProperty(cases({ overlapping, steps: STEPS }), (one) =>
    runCase(it, one, { overlapping }),
  );
  return fc.check(property, { numRuns: count, ...replayed() });
}

function inFull({
  seed,
  counterexamplePath,
  counterexample,
  errorInstance,
  numShrinks,
}: fc.RunDetails<[Case]>) {
  const error = errorInstance instanceof Error ? errorInstance : new Error(String(errorInstance));
  const what = error.constructor.name === "Difference" ? error.message : error.stack;
  return `${what}
${counterexample ? inWords(counterexample[0]) : ""}
again: MODEL_SEED=${seed} MODEL_PATH=${counterexamplePath} (shrunk ${numShrinks} times)`;
}

test.serial("the engine admits what the model admits", async (t) => {
  t.timeout(600_000 + CASES * 2000);
  const details = await check(t, { overlapping: false, count: Math.ceil(CASES * 0.8) });
  if (details.failed) t.fail(inFull(details));
  t.pass();
});

test.serial(
  "where keyed scopes overlap, nothing goes past a limit and nobody waits for nothing",
  async (t) => {
    t.timeout(600_000 + CASES * 2000);
    const details = await check(t, { overlapping: true, count: Math.ceil(CASES * 0.2) });
    if (details.failed) t.fail(inFull(details));
    t.pass();
  },
);
