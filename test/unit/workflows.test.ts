// The workflows ask for little, and name what is there: scripts, actions by version, the supported PostgreSQL and Node.
import { existsSync, globSync, readFileSync } from "node:fs";
import test from "ava";
import { VERSIONS } from "../../scripts/postgres/versions.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const FOLDER = `${ROOT}.github/workflows/`;
const WORKFLOWS = new Map(globSync("*.yml", { cwd: FOLDER }).map((name) => [name, read(FOLDER + name)]));
const { scripts, engines } = JSON.parse(read(`${ROOT}package.json`));

test("there are workflows for pull requests, nights, containers and releases", (t) => {
  t.deepEqual([...WORKFLOWS.keys()].sort(), ["docker.yml", "nightly.yml", "publish.yml", "test.yml"]);
  t.regex(WORKFLOWS.get("test.yml")!, /^on:\n {2}push:\n {4}branches: \[main\]\n {2}pull_request:$/m);
  t.regex(WORKFLOWS.get("test.yml")!, /run: \.ci\/run$/m);
});

for (const [name, text] of WORKFLOWS) {
  test(`${name} may only read, and keeps no credentials`, (t) => {
    t.regex(text, /^permissions:\n {2}contents: read\n$/m);
    const writes = [...text.matchAll(/^ +([\w-]+): write/gm)].map(([, right]) => right);
    t.deepEqual(writes, name === "publish.yml" ? ["id-token"] : [], "npm knows the publisher by it");
    t.is(count(text, /uses: actions\/checkout@/g), count(text, /persist-credentials: false/g));
    t.false(/secrets\.|pull_request_target/.test(text));
  });

  test(`${name} names actions by version, and commands that are there`, (t) => {
    for (const [, action] of text.matchAll(/uses: (.*)$/gm)) t.regex(action ?? "", /^actions\/[\w-]+@v\d+$/);
    t.is(count(text, /timeout-minutes:/g), count(text, /runs-on:/g));
    const commands = [...text.matchAll(/run: (.*)$/gm)].map(([, command = ""]) => command);
    t.true(commands.length > 0);
    for (const command of commands) {
      const [, script] = /npm run -s (\S+)/.exec(command) ?? [];
      if (script) t.true(script in scripts, script);
      const [, file] = /(?:^|node )(\.ci\/\w+|scripts\/\S+)/.exec(command) ?? [];
      if (file) t.true(existsSync(ROOT + file), file);
      // what others write, such as a branch's name, would run as a part of the command
      t.notRegex(command, /\$\{\{ *github\.(?!run_number)/, command);
    }
  });
}

test("nights have each supported PostgreSQL, and Node from the oldest on", (t) => {
  const listOf = (key: string) =>
    new RegExp(`^ +${key}: \\[(.*)\\]$`, "m").exec(WORKFLOWS.get("nightly.yml")!)?.[1]?.split(", ");
  t.deepEqual(listOf("postgres"), [...VERSIONS]);
  t.is(listOf("node")?.[0], /\d+/.exec(engines.node)?.[0]);
});

test("who reports a bug is asked for what commands print that are there", (t) => {
  const template = read(`${ROOT}.github/ISSUE_TEMPLATE/bug.md`);
  const verbs = [...template.matchAll(/graphile-worker-dispatch-policy (\w+) /g)].map(([, verb]) => verb);
  t.deepEqual(verbs, ["doctor", "explain"]);
  for (const verb of verbs) t.true(existsSync(`${ROOT}src/cli/${verb}.ts`), verb);
});

test("the paths that have owners are there", (t) => {
  const lines = read(`${ROOT}.github/CODEOWNERS`).split("\n");
  const paths = lines.flatMap((line) => /^(?:# )?\/(\S+)/.exec(line)?.[1] ?? []);
  t.true(paths.length > 3);
  for (const one of paths) t.true(existsSync(ROOT + one), one);
});

function read(file: string): string {
  return readFileSync(file, "utf8");
}

function count(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0;
}
