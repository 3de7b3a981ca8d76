// init, in a project as its user has one.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { runIn } from "../helpers/command.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { readersProject } from "../helpers/readers-project.ts";

const WORKER = fileURLToPath(import.meta.resolve("graphile-worker")).replace(/index\.js$/, "cli.js");
const asked = (task: string, partitionBy: string) => ["init", "--task", task, "--partition-by", partitionBy];
const ASKED = asked("fetch_endpoint", "endpointId");

async function folder(t: ExecutionContext, files: Readonly<Record<string, string>>) {
  const cwd = await mkdtemp(path.join(os.tmpdir(), "init-"));
  t.teardown(() => rm(cwd, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(cwd, name)), { recursive: true });
    await writeFile(path.join(cwd, name), text);
  }
  return { cwd, init: (...more: readonly string[]) => runIn({ cwd }, ...ASKED, ...more) };
}

for (const [what, more, extension] of [
  ["modules in TypeScript", { "tsconfig.json": "{}" }, "ts"],
  ["modules that Node runs as TypeScript", { "env.ts": "" }, "ts"],
  ["modules in JavaScript", {}, "js"],
  ["CommonJS", { "package.json": "{}" }, "mjs"],
] as const)
  test(`a project of ${what}: what init writes is a worker that limits the task`, async (t) => {
    const { url, pool } = await lentDatabase(t);
    const cwd = await readersProject(t);
    for (const [name, text] of Object.entries(more)) await writeFile(path.join(cwd, name), text);
    const env = { DATABASE_URL: url };
    const { stdout, code } = await runIn({ cwd }, ...ASKED, "--yes");
    t.is(code, 0);
    t.is(
      stdout,
      `Wrote policies.${extension}.\nWrote graphile.config.${extension}.\nWrote crontab.\n` +
        `Write the task: tasks/fetch_endpoint.${extension}\n`,
    );
    await writeFile(path.join(cwd, `tasks/fetch_endpoint.${extension}`), "export default async () => {};\n");
    t.is((await runIn({ cwd }, ...ASKED, "--yes")).stdout, "All is there: nothing is left to write.\n");
    t.is((await runIn({ cwd, env }, "migrate")).code, 0);
    await runWorkerOnce(cwd, env);
    await pool.query("select dispatch_policy.add_job('fetch_endpoint', '{\"endpointId\": \"ep1\"}')");
    await runWorkerOnce(cwd, env);
    const { rows } = await pool.query(
      "select partition, staged, admitted_total from dispatch_policy.partitions",
    );
    t.deepEqual(rows, [{ partition: "ep1", staged: 0, admitted_total: "1" }]);
    t.is(
      (await pool.query("select from graphile_worker.jobs where task_identifier = 'fetch_endpoint'"))
        .rowCount,
      0,
    );
  });

function runWorkerOnce(cwd: string, env: NodeJS.ProcessEnv) {
  return promisify(execFile)(process.execPath, [WORKER, "--once"], { cwd, env: { ...process.env, ...env } });
}

test("without --yes, and with --dry-run, it shows the files and writes none", async (t) => {
  const { cwd, init } = await folder(t, { "package.json": '{ "type": "module" }' });
  const shown = await init();
  t.is(shown.code, 2);
  t.regex(shown.stdout, /^Would write policies\.js:\n\nimport \{ definePolicy \}/);
  t.regex(shown.stdout, /Would write graphile\.config\.js:\n/);
  t.regex(shown.stdout, /Would write crontab:\n\n# .*\n\* \* \* \* \* dispatch_policy_tick/);
  t.is(shown.stderr, "Nothing has changed. To do it, add --yes.\n");
  t.is((await init("--dry-run", "--yes")).code, 0);
  const { files, steps, written } = JSON.parse((await init("--dry-run", "--json")).stdout);
  t.deepEqual(
    files.map(({ name, isAdded }: { name: string; isAdded: boolean }) => [name, isAdded]),
    [
      ["policies.js", false],
      ["graphile.config.js", false],
      ["crontab", false],
    ],
  );
  t.deepEqual([steps, written], [["Write the task: tasks/fetch_endpoint.js"], false]);
  t.deepEqual(await readdir(cwd), ["package.json"]);
});

test("code that is there stays as it is, a crontab gets the line once, and a second call writes nothing", async (t) => {
  const files = {
    "package.json": '{ "type": "module" }',
    "graphile.config.js": "export default {};",
    "policies.ts": "export const policies = [];",
    crontab: "0 4 * * * rollup ?fill=1d\n# dispatch_policy_tick is missing",
    "tasks/fetch_endpoint.js": "export default () => {};",
  };
  const { cwd, init } = await folder(t, files);
  const first = await init("--yes");
  t.is(first.code, 0);
  t.regex(first.stdout, /^Added a line to crontab\.\n/);
  t.regex(first.stdout, /Add the policy to policies\.ts:\n {4}import \{ definePolicy \}/);
  t.regex(
    first.stdout,
    /Add the preset to "extends" of graphile\.config\.js:\n.*\n {4}import \{ fetchEndpointPolicy \} from "\.\/policies\.ts";\n\n {4}dispatchPolicyPreset\(\{ policies: \[fetchEndpointPolicy\] \}\)\n/,
  );
  const text = (name: string) => readFile(path.join(cwd, name), "utf8");
  const { crontab: before, ...others } = files;
  for (const [name, unchanged] of Object.entries(others)) t.is(await text(name), unchanged, name);
  const crontab = await text("crontab");
  t.regex(
    crontab.slice(before.length),
    /^\n# .*\n\* \* \* \* \* dispatch_policy_tick \?jobKey=dispatch_policy_tick\n$/,
  );
  t.is(crontab.slice(0, before.length), before);
  const second = await init("--yes");
  t.is(second.code, 0);
  t.regex(second.stdout, /^There is no file to write\.\n/);
  t.is(await text("crontab"), crontab);
});

test("a project with other policies is told what to add, and nothing that it has", async (t) => {
  const { init } = await folder(t, {
    "package.json": '{ "type": "module" }',
    "graphile.config.ts": "export default { extends: [dispatchPolicyPreset({ policies: [sendMail] })] };",
    "policies.ts": 'export const sendMail = definePolicy("send_mail", {});',
    crontab: "* * * * * dispatch_policy_tick ?jobKey=dispatch_policy_tick",
    "tasks/fetch_endpoint.ts": "",
  });
  const { steps } = JSON.parse((await init("--yes", "--json")).stdout);
  t.is(steps.length, 2);
  t.regex(steps[0], /^Add the policy to policies\.ts:\n/);
  t.is(
    steps[1],
    "Add fetchEndpointPolicy of policies.ts to the policies of dispatchPolicyPreset in graphile.config.ts",
  );
});

for (const [what, files, line, says] of [
  ["a folder that is no project", {}, ASKED, /^init: there is no package\.json here: go to the project's/],
  ["a package.json that is none", { "package.json": "{" }, ASKED, /^init: package\.json is no JSON: /],
  [
    "a task that no policy can have",
    { "package.json": "{}" },
    asked("", "key"),
    /^init: the first argument of definePolicy must be a non-empty string/,
  ],
  [
    "a path that is none",
    { "package.json": "{}" },
    asked("fetch_endpoint", "a..b"),
    /^init: policy "fetch_endpoint": partitionBy/,
  ],
] as const)
  test(`${what} is refused, and nothing is written`, async (t) => {
    const { cwd } = await folder(t, files);
    const { stderr, code } = await runIn({ cwd }, ...line, "--yes");
    t.not(code, 0);
    t.regex(stderr, says);
    t.deepEqual(await readdir(cwd), Object.keys(files));
  });
