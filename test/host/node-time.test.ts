// Workers under useNodeTime fetch jobs by their own clock; all else goes by the database's, however wrong the worker's is.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";

const CLOCK = new URL("../fixtures/skewed-clock.ts", import.meta.url).href;
const WORKER = fileURLToPath(new URL("../fixtures/skewed-worker.ts", import.meta.url));
const HOUR = 3_600_000;
/** How wrong a worker may measure the difference of the clocks: less than the least skew below. */
const MEASURED_TO_MS = 200;

interface Run {
  key: string;
  attempt: number;
  lagMs: number;
  /** By the clock of the database, as all that follows but for the worker's own. */
  admittedAt: string;
  saidAt: number;
}

for (const [how, skew] of [
  ["an hour behind", -HOUR],
  ["a quarter of a second behind", -250],
  ["right", 0],
  // further ahead, Graphile Worker fetches a failed job again at once: its back-off is the database's
  ["a second ahead", 1000],
] as const) {
  test(`a worker's clock is ${how}: jobs run at once, lags are right, holds and retries last as long as they say`, async (t) => {
    const { url, pool } = await testDatabase(t);
    const child = spawn(process.execPath, ["--import", CLOCK, WORKER], {
      env: { ...process.env, DATABASE_URL: url, CLOCK_SKEW_MS: String(skew) },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const gone = once(child, "exit");
    t.teardown(async () => {
      child.kill("SIGKILL");
      await gone;
    });
    const lines: string[] = [];
    const saidAt: number[] = [];
    createInterface({ input: child.stdout }).on("line", (line) => {
      lines.push(line);
      saidAt.push(Date.now());
    });
    await until("the worker runs", () => lines.includes("runs"));
    await until("the policy is declared", async () => {
      const { rows } = await pool.query("select from dispatch_policy.workers w, dispatch_policy.policies p");
      return rows.length > 0;
    });
    const keys = ["a", "a", "b", "c", "fails", "held", "hold"];
    for (const key of keys) await pool.query("select dispatch_policy.add_job('skewed', $1)", [{ key }]);

    // the poll interval is a minute: what is not found when the worker is told of it would wait as long
    const runs = (): Run[] =>
      lines.flatMap((line, n) =>
        line.startsWith("{") ? [{ ...JSON.parse(line), saidAt: saidAt[n] } as Run] : [],
      );
    await until("all ran, the failed one twice", () => runs().length === keys.length + 1, {
      seen: async () => ({ lines, jobs: (await pool.query("select * from dispatch_policy.jobs")).rows }),
    });
    for (const { key, attempt, lagMs, admittedAt, saidAt } of runs()) {
      const atMost = saidAt - Date.parse(admittedAt) + MEASURED_TO_MS;
      t.true(
        lagMs >= 0 && lagMs <= atMost,
        `lag of ${key}, attempt ${attempt}: ${lagMs} of at most ${atMost}`,
      );
    }
    await until("slots are freed, and never by a timeout", async () => {
      const { rows } = await pool.query("select sum(in_flight)::int as n from dispatch_policy.limiters");
      return rows[0].n === 0;
    });

    const { rows: held } = await pool.query(`select partition,
        extract(epoch from held_until - clock_timestamp())::float8 as seconds
      from dispatch_policy.partitions where held_until is not null order by 1`);
    t.deepEqual(
      held.map(({ partition }) => partition),
      ["held", "hold"],
    );
    for (const { partition, seconds } of held)
      t.true(seconds > 500 && seconds <= 600, `${partition}: held for ${seconds} s`);
    const { rows: retries } = await pool.query(
      "select extract(epoch from run_at - clock_timestamp())::float8 as seconds from dispatch_policy.staged_jobs",
    );
    t.is(retries.length, 1);
    t.true(retries[0].seconds > 500 && retries[0].seconds <= 600, `retried in ${retries[0].seconds} s`);
    const limits = "select current_max from dispatch_policy.limiters where gate = 'adaptive_concurrency'";
    for (const { current_max } of (await pool.query(limits)).rows) t.true((current_max ?? 5) >= 2);
    child.stdin.end();
    await gone;
  });
}
