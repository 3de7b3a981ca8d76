// The chaos suite in short; `npm run test:chaos` is its long form.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { type Charge, excess } from "./rates.ts";

const MAIN = fileURLToPath(new URL("main.ts", import.meta.url));
const SECONDS = process.env.CHAOS_SECONDS ?? "60";
const SEED = process.env.CHAOS_SEED ?? "1";

async function chaos(t: ExecutionContext, ...options: string[]) {
  t.timeout(300_000 + Number(SECONDS) * 1000);
  const child = spawn(process.execPath, [MAIN, "--seconds", SECONDS, "--seed", SEED, ...options]);
  t.teardown(() => child.kill());
  const exited = once(child, "exit");
  const [out, log] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = await exited;
  t.not(out.trim(), "", log);
  return { code, log, verdict: JSON.parse(out.trim().split("\n").at(-1)!) };
}

test.serial("chaos: no overrun, no loss, no leak, and only what was hit runs twice", async (t) => {
  const { code, log, verdict } = await chaos(t);
  t.log(JSON.stringify(verdict));
  t.deepEqual(verdict.problems, [], log);
  t.is(code, 0);
  t.true(verdict.jobs > 50, "it ran");
});

const charge = (from: number, to = from): Charge => ({ from, to });

test("a bucket that gave more than it held is seen, whatever the stretch of time", (t) => {
  const rate = { rate: 10, capacity: 2 };
  t.true(excess([charge(0), charge(0), charge(100), charge(200)], rate, 0) <= 0);
  t.true(excess([charge(0), charge(0), charge(50), charge(60)], rate, 0) > 1);
  t.true(excess([charge(0), charge(0), charge(50), charge(60)], rate, 200) <= 0, "a clock ran ahead");
  t.true(
    excess([charge(0), charge(0), charge(0, 500), charge(0, 600)], rate, 0) <= 0,
    "charged some time until then",
  );
});
