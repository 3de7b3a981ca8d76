// The README's blocks, put together and run as its reader would.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test from "ava";
import { runIn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { type Block, blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";

test("the README's five-minute start runs, and so do its other blocks", async (t) => {
  t.timeout(3 * 60_000);
  const { url, pool } = await testDatabase(t, { migrated: false });
  const project = await readersProject(t);
  const blocks = [...(await blocksOf("README.md")), ...(await blocksOf("docs/operating.md"))];
  await writeFiles(project, blocks);
  const node = (...args: string[]) =>
    promisify(execFile)(process.execPath, args, { cwd: project, env: { ...process.env, DATABASE_URL: url } });
  const work = () => node("node_modules/graphile-worker/dist/cli.js", "--once");

  const early = await t.throwsAsync(node("add.ts"));
  const { stderr, code } = early as unknown as { stderr: string; code: number };
  t.regex(
    stderr,
    /^database schema "dispatch_policy" has not been set up .*: run "[^"]* migrate", start a worker .*\n$/,
  );
  t.is(code, 1);
  await work();
  const added = await node("add.ts");
  t.regex(added.stdout, /^10{14}\d ep1$/m);
  const [addJob = "", ...others] = blocks.filter(({ language }) => language === "sql").flatMap(statementsOf);
  await pool.query(addJob);
  const worked = await work();
  const started = worked.stdout.match(/asking ep1, attempt 1/g)?.length ?? 0;
  t.true(started >= 60 && started <= 101, worked.stdout); // a minute's tokens, and those that came meanwhile
  for (const statement of others) await t.notThrowsAsync(pool.query(statement), statement);
  const operated = await node("operating.ts");
  t.regex(operated.stdout, /orphaned/);
  t.regex(operated.stdout, /^ana limits account acme$/m);
  for (const line of commandsOf(blocks))
    t.is((await runIn({ cwd: project, env: { DATABASE_URL: url } }, ...line)).code, 0, line.join(" "));
});

/** The commands of the README's last step, each as its arguments. */
function commandsOf(blocks: readonly Block[]): string[][] {
  const { text = "" } = blocks.find(({ text }) => text.includes("explain --policy")) ?? {};
  const lines = [...text.matchAll(/^npx graphile-worker-dispatch-policy (.*)$/gm)];
  return lines.map(([, line = ""]) => [...line.matchAll(/"([^"]+)"|(\S+)/g)].map(([, a, b]) => a ?? b ?? ""));
}

function statementsOf({ text }: Block): string[] {
  return text.split(/;.*$/m).filter((statement) => statement.trim() !== "");
}
