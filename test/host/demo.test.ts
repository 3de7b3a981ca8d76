// The demo, on a small scale: its exit code says whether a limit was broken or a job lost.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
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
  const { rows } = await pool.query(
    "select datname from pg_database where datname like 'dispatch_policy_demo%'",
  );
  t.deepEqual(rows, []);
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
