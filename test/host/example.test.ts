// The example project, run with its one command; and the README's blocks, put together and run as its reader would.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { testDatabase } from "../helpers/database.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

test("examples/webhooks stages, admits, holds after a 429, and delivers every event", async (t) => {
  const { url, pool } = await testDatabase(t);

  const { stdout } = await promisify(execFile)(process.execPath, ["examples/webhooks/main.ts"], {
    cwd: ROOT,
    env: { ...process.env, DATABASE_URL: url },
    timeout: 60_000,
  });

  t.regex(
    stdout,
    /^staged before any worker runs: 31$/m,
    "30 releases and a sign-up; order_paid has no policy",
  );
  t.regex(stdout, /^received 32 events$/m);
  const places = /came as number (\d+) and (\d+)$/m.exec(stdout)?.slice(1).map(Number) ?? [];
  t.true(Math.max(...places) < 20, `the quiet customer does not wait for the loud one's 30: ${stdout}`);
  const holds = await pool.query("select reason from dispatch_policy.audit where verb = 'hold'");
  t.deepEqual(holds.rows, [{ reason: "429 from the endpoint" }]);
  const left = await pool.query(`select
    (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
    (select count(*)::int from graphile_worker.jobs where task_identifier <> 'dispatch_policy_tick') as jobs`);
  t.deepEqual(left.rows, [{ staged: 0, in_flight: 0, jobs: 0 }]);
});

test("the README's five-minute start type-checks and runs, and so do its other blocks", async (t) => {
  t.timeout(3 * 60_000);
  const { url, pool } = await testDatabase(t, { migrated: false });
  const project = await readersProject();
  t.teardown(() => rm(project, { recursive: true, force: true }));
  const blocks = [...(await blocksOf("README.md")), ...(await blocksOf("docs/operating.md"))];
  await writeFiles(project, blocks);
  const node = (...args: string[]) =>
    promisify(execFile)(process.execPath, args, { cwd: project, env: { ...process.env, DATABASE_URL: url } });
  const work = () => node("node_modules/graphile-worker/dist/cli.js", "--once");

  t.deepEqual(await typeErrors(project), []);
  await work();
  const added = await node("add.ts");
  t.regex(added.stdout, /^10{14}\d ep1$/m);
  const [addJob = "", ...others] = blocks.filter(({ language }) => language === "sql").flatMap(statementsOf);
  await pool.query(addJob);
  const worked = await work();
  t.is(worked.stdout.match(/asking ep1, attempt 1/g)?.length, 2, worked.stdout);
  for (const statement of others) await t.notThrowsAsync(pool.query(statement), statement);
  const operated = await node("operating.ts");
  t.regex(operated.stdout, /orphaned/);
  t.regex((await node("telling.ts")).stdout, /^ana paused fetch_endpoint ep1: incident 12$/m);
  await t.notThrowsAsync(node("operate.ts"));
});

/** Those of the project itself: the package's own are found by `npm run check`. */
async function typeErrors(project: string): Promise<string[]> {
  const tsc = path.join(ROOT, "node_modules/typescript/bin/tsc");
  const checked = promisify(execFile)(process.execPath, [tsc, "-p", "."], { cwd: project });
  const { stdout } = await checked.catch((error: { stdout: string }) => error);
  return stdout.split("\n").filter((line) => /^(?!\.\.).*error TS/.test(line));
}

interface Block {
  readonly language: string;
  readonly text: string;
}

async function blocksOf(page: string): Promise<Block[]> {
  const text = await readFile(path.join(ROOT, page), "utf8");
  return [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language = "", text = ""]) => ({
    language,
    text,
  }));
}

/** A TypeScript block says in its first line which file it is; the only other file is the crontab. */
async function writeFiles(project: string, blocks: Block[]): Promise<void> {
  for (const { language, text } of blocks) {
    const name =
      language === "ts" ? /^\/\/ (\S+)$/m.exec(text)?.[1] : language === "crontab" ? "crontab" : undefined;
    if (name) await writeFile(path.join(project, name), text);
  }
}

function statementsOf({ text }: Block): string[] {
  return text.split(/;.*$/m).filter((statement) => statement.trim() !== "");
}

/** A folder where the packages the README names resolve, this one to its sources. */
async function readersProject(): Promise<string> {
  const project = await mkdtemp(path.join(os.tmpdir(), "readme-"));
  const modules = path.join(project, "node_modules");
  await mkdir(modules);
  await mkdir(path.join(project, "tasks"));
  for (const name of ["graphile-worker", "graphile-config", "pg", "zod", "@types"])
    await symlink(path.join(ROOT, "node_modules", name), path.join(modules, name));
  const self = path.join(project, "self");
  await mkdir(self);
  await symlink(self, path.join(modules, "graphile-worker-dispatch-policy"));
  const source = JSON.stringify(path.join(ROOT, "src/index.ts"));
  const files = {
    "package.json": '{ "type": "module" }',
    "tsconfig.json": JSON.stringify({
      extends: path.join(ROOT, "tsconfig.json"),
      include: ["*.ts", "tasks"],
      exclude: [],
    }),
    "self/package.json":
      '{ "name": "graphile-worker-dispatch-policy", "type": "module", "exports": "./index.ts" }',
    "self/index.ts": `export * from ${source};\n`,
  };
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(project, name), text);
  return project;
}
