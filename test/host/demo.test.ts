// The demo, on a small scale: its exit code says whether a limit was broken or a job lost.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import type { Measures } from "../../examples/demo/measure.ts";
import { whySlow } from "../../examples/demo/report.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test.serial("the demo breaks no limit with the policy, breaks them without, and cleans up", async (t) => {
  const { url, pool } = await testDatabase(t, { migrated: false });

  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["examples/demo/main.ts", "--endpoints", "25", "--loudest", "40"],
    { cwd: ROOT, env: { ...process.env, DATABASE_URL: url }, timeout: 110_000 },
  );

  t.regex(stdout, /With the policy: no violation, no job lost/);
  t.regex(stdout, /^jobs done +(\d+) \/ \1 /m);
  const [, governed, plain] = /^violations: too many at once +(\S+) +(\S+)$/m.exec(stdout) ?? [];
  t.is(governed, "0");
  t.not(plain, "0");
  t.regex(stdout, /What to try next/);
  const use = Number(/^use made of the allowed rate +(\S+) %/m.exec(stdout)?.[1]);
  const last = stdout.trim().split("\n").at(-1) as string;
  t.log(last);
  // of 85.0 % nobody knows whether it was rounded up
  if (use !== 85) t.is(/^With the policy \S+ % of the allowed rate was used/.test(last), use < 85, last);
  const { rows } = await pool.query(
    "select datname from pg_database where datname like 'dispatch_policy_demo%'",
  );
  t.deepEqual(rows, []);
});

test("it says why less than the rate was used, by what it measured", (t) => {
  const why = (use: number, busy: number) =>
    whySlow({ use, load: { busy, admitted: 74.2, notStarted: 31 } } as Measures);
  t.is(
    why(0.712, 0.97),
    "With the policy 71.2 % of the allowed rate was used, less than 85.0 %: in the mean 31.0 of 74.2 admitted jobs waited " +
      "for workers, and the processors were 97.0 % busy, so this machine was slower than the rate.",
  );
  t.regex(
    why(0.712, 0.4) ?? "",
    /40\.0 % busy, so something other than the processors, such as the disk, was slower/,
  );
  t.is(why(0.9, 0.97), null);
});

test.serial(
  "with --ui a page starts storms, the admin pages show their database, and ctrl-c cleans up",
  async (t) => {
    const { url, pool } = await testDatabase(t, { migrated: false });
    const args = ["examples/demo/main.ts", "--ui", "--port", "0", "--endpoints", "10", "--loudest", "12"];
    const env = { ...process.env, DATABASE_URL: url };
    const demo = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
    t.teardown(() => demo.kill("SIGKILL"));
    const lines: string[] = [];
    createInterface({ input: demo.stdout }).on("line", (line) => void lines.push(line));
    const origin = await until("it serves", () => /http:\S+(?=\/$)/.exec(lines[0] ?? "")?.[0]);
    const ask = async (path: string, init?: RequestInit) => (await fetch(origin + path, init)).text();
    const start = (mode: string, from = origin) =>
      fetch(`${origin}/`, {
        ...{ method: "POST", redirect: "manual", headers: { origin: from } },
        body: new URLSearchParams({ mode, endpoints: "5", loudest: "60" }),
      });
    t.is((await start("governed", "http://other.example")).status, 403);
    t.notRegex(await ask("/"), /<table>/);
    t.is((await start("governed")).status, 303);
    await until("its progress is there", async () =>
      />\s*\d+ s: \d+ added, \d+ served, /.test(await ask("/")),
    );
    const page = await until("its figures are there", async () => /jobs done.*/.exec(await ask("/"))?.[0]);
    t.regex(page, /^jobs done<\/th><td>(\d+) \/ \1</);
    t.regex(page, /too many at once<\/th><td>0</);
    t.regex(await ask("/admin/"), /visit_endpoint/);
    demo.kill("SIGINT");
    t.deepEqual(await once(demo, "exit"), [130, null]);
    const { rows } = await pool.query(
      "select datname from pg_database where datname like 'dispatch_policy_demo%' and datname like $1",
      [`%${demo.pid}`],
    );
    t.deepEqual(rows, []);
  },
);
