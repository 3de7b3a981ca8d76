// The chaos suite in short; `npm run test:chaos` is its long form.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { atLength } from "../helpers/at-length.ts";
import { type Charge, excess } from "./rates.ts";

const MAIN = fileURLToPath(new URL("main.ts", import.meta.url));
const SECONDS = process.env.CHAOS_SECONDS ?? "12";
const SECONDS_BEFORE_THE_WAY_OUT = "6";
const SEED = process.env.CHAOS_SEED ?? "1";

async function chaos(t: ExecutionContext, seconds: string, ...options: string[]) {
  t.timeout(300_000 + Number(seconds) * 1000);
  const child = spawn(process.execPath, [MAIN, "--seconds", seconds, "--seed", SEED, ...options]);
  t.teardown(() => child.kill());
  const exited = once(child, "exit");
  const [out, log] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = await exited;
  t.not(out.trim(), "", log);
  return { code, log, verdict: JSON.parse(out.trim().split("\n").at(-1)!) };
}

/** Each takes half a minute of a processor. */

atLength("chaos: no overrun, no loss, no leak, and only what was hit runs twice", async (t) => {
  isClean(t, await chaos(t, SECONDS, "--no-out"));
});

atLength("chaos that ends with an uninstall: plain Graphile Worker runs what is left", async (t) => {
  isClean(t, await chaos(t, SECONDS_BEFORE_THE_WAY_OUT, "--out"));
});

function isClean(t: ExecutionContext, { code, log, verdict }: Awaited<ReturnType<typeof chaos>>): void {
  t.log(JSON.stringify(verdict));
  t.deepEqual(verdict.problems, [], log);
  t.is(code, 0);
  t.true(verdict.jobs > 50, "it ran");
}

const charge = (from: number, to = from): Charge => ({ from, to });
const bucket = { from: 0, rate: 10, capacity: 2 };

test("a bucket that gave more than it held is seen, whatever the stretch of time", (t) => {
  t.true(excess([charge(0), charge(0), charge(100), charge(200)], [bucket], 0) <= 0);
  t.true(excess([charge(0), charge(0), charge(50), charge(60)], [bucket], 0) > 1);
  t.true(excess([charge(0), charge(0), charge(50), charge(60)], [bucket], 200) <= 0, "a clock ran ahead");
  t.true(
    excess([charge(0), charge(0), charge(0, 500), charge(0, 600)], [bucket], 0) <= 0,
    "charged some time until then",
  );
});

test("a bucket whose rate and capacity change gives what flows in at each rate", (t) => {
  const changing = [bucket, { from: 1000, rate: 1, capacity: 4 }, { from: 3000, rate: 10, capacity: 2 }];
  const times = (...at: number[]) => at.map((one) => charge(one));
  // 2 tokens, 5 of half a second, then 1 of a second
  t.true(excess(times(500, 500, 700, 800, 900, 1000, 1000, 2000, 2000, 2000), changing, 0) <= 0);
  t.true(excess(times(1001, 1001, 1001, 1001, 2001), changing, 0) <= 0);
  t.true(excess(times(1001, 1001, 1001, 1001, 2001, 2001), changing, 0) > 0.9);
  t.true(excess(times(3001, 3001, 3001), changing, 0) > 0.9);
});
