// The command line itself: helps, mistakes, completion, and that its verbs are those of TypeScript and SQL.
import test from "ava";
import { COMMANDS } from "../../src/cli/commands.ts";
import { runIn, runInTurn } from "../helpers/command.ts";
import { world } from "./world.ts";

const cli = (...args: readonly string[]) => runIn({}, ...args);
const NAMES = COMMANDS.map(({ name }) => name);
const camelCase = (name: string) => name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());

test("the help lists all commands, each with a help of its own that has examples, in 80 columns", async (t) => {
  const { stdout, stderr, code } = await cli("--help");
  t.deepEqual([stderr, code], ["", 0]);
  const listed = [...stdout.matchAll(/^ {2}([a-z-]+) {2,}\S/gm)].map(([, name]) => name);
  t.deepEqual(listed.toSorted(), [...NAMES, "completion"].toSorted());
  for (const name of NAMES) {
    const help = await runInTurn({}, name, "--help");
    t.is(help.code, 0, name);
    t.regex(
      help.stdout,
      new RegExp(`^graphile-worker-dispatch-policy ${name} [\\s\\S]*\\nExamples:\\n  ${name}`),
    );
    t.deepEqual(
      help.stdout.split("\n").filter((line) => line.length > 80),
      [],
    );
  }
});

const MISTAKES: readonly (readonly [line: string, says: RegExp])[] = [
  ["", /^no command: name one\nSee graphile-worker-dispatch-policy --help\n$/],
  ["migrat", /^unknown command "migrat": did you mean "migrate"\?\n/],
  ["polices", /^unknown command "polices": did you mean "policies"\?\nSee /],
  ["limit", /^unknown command "limit": did you mean "limits", "set-limit" or "clear-limit"\?\n/],
  ["pause-policy", /^unknown command "pause-policy": did you mean "pause" or "remove-policy"\?\n/],
  ["pauze --policy jobs", /^unknown command "pauze": did you mean "pause"\?\n/],
  ["frobnicate", /^unknown command "frobnicate" \(known commands: status,/],
  ["pause --polcy a", /^pause: unknown option "polcy": did you mean "policy"\?\nSee .* pause --help\n$/],
  ["pause --policy", /^pause: --policy needs a value\n/],
  ["pause --policy a --policy b", /^pause: --policy is given 2 times, expected once\n/],
  ["pause a", /^pause: unexpected "a"\n/],
  ["pause", /^pause: give --policy NAME, or --all for every policy\n/],
  ["pause --policy a --all", /^pause: give --policy NAME, or --all for every policy\n/],
  ["pause --policy a --until 5", /^pause: --until must be a time such as /],
  ["hold --policy a", /^hold: give --partition KEY, or --gate NAME with --key KEY\n/],
  ["hold --policy a --partition b", /^hold: give --for DURATION or --until TIME\n/],
  [
    "hold --policy a --partition b --for 30",
    /^hold: --for must be a duration such as "30 seconds", got "30"\n/,
  ],
  ["set-limit --policy a --gate b", /^set-limit: give at least one number/],
  ["set-limit --policy a --gate b --max many", /^set-limit: --max must be a number, got "many"\n/],
  [
    "refresh-context --policy a --context pro",
    /^refresh-context: --context is "pro", expected NAME=VALUE, such as plan=free\n/,
  ],
  ["refresh-context --policy a", /^refresh-context: missing --context\n/],
  ["move --policy a --partition b", /^move: nowhere to go: give --to-partition KEY or --to-policy NAME\n/],
  ["admit --policy a", /^admit: give --count N or --drain\n/],
  ["diff --policy a", /^diff: give --gate NAME with a number, or --definition\n/],
  [
    "diff --policy a --definition --max 1",
    /^diff: --definition goes without --gate, --key, --where and numbers\n/,
  ],
  ["diff --policy a --definition", /^diff: no configuration with policies in this folder: name it with/],
  ["release-slots", /^release-slots: missing argument\n/],
  ["release-slots abc", /^release-slots: jobId must be a job id/],
  ["remove", /^remove: no jobs: give their ids, --job-key KEY or --policy NAME\n/],
  ["cancel", /^cancel: no jobs: give their ids, or --policy NAME\n/],
  ["explain 1 --policy a", /^explain: give a job's id, --policy NAME and --partition KEY, or --key KEY\n/],
  ["explain --policy a --key b", /^explain: give a job's id, /],
  ["jobs --state faild", /^jobs: --state must be staged, parked, ready, running, failed, got "faild"\n/],
  ["top", /^top: stdout is no terminal: give --once\n/],
];

for (const [line, says] of MISTAKES)
  test.serial(`a mistake is exit code 2, and changes nothing: ${line || "no command"}`, async (t) => {
    const nowhere = { DATABASE_URL: "postgres://nobody@127.0.0.1:1/nothing" };
    const { stdout, stderr, code } = await runInTurn(nowhere, ...line.split(" ").filter(Boolean));
    t.regex(stderr, says);
    t.deepEqual([stdout, code], ["", 2]);
  });

test("what the database refuses is 2 if the line is wrong, and 1 if not", async (t) => {
  const { cli: at } = await world(t);
  t.like(await at("pause", "--policy", "nope"), {
    stderr: 'pause: unknown policy "nope" (known policies: fetch_endpoint, make_report,\nsend_mail)\n',
    code: 2,
  });
  t.regex(
    (await at("set-limit", "--policy", "send_mail", "--gate", "al", "--max", "1")).stderr,
    /has no gate 'al'/,
  );
  const refused = await runIn({}, "status", "--connection", "postgres://nobody:secret@127.0.0.1:1/nothing");
  t.is(refused.code, 1);
  t.regex(refused.stderr, /^status: .*ECONNREFUSED/);
  t.false(refused.stderr.includes("secret"));
  t.like(await at("status", "--policy-schema", "elsewhere"), { code: 1 });
});

test("a shell can complete commands and their options", async (t) => {
  t.regex((await cli("completion")).stdout, /graphile-worker-dispatch-policy --get-yargs-completions/);
  const commands = (await cli("--get-yargs-completions", "it", "")).stdout.trim().split("\n");
  for (const name of NAMES) t.true(commands.includes(name), name);
  const options = (await cli("--get-yargs-completions", "it", "pause", "--")).stdout;
  t.regex(options, /^--partition$/m);
});

test("--version is that of the package", async (t) => {
  const { default: manifest } = await import("../../package.json", { with: { type: "json" } });
  t.is((await cli("--version")).stdout, `${manifest.version}\n`);
});

/** Of Graphile Worker's own, of programs, or an old name. */
const NO_COMMANDS = [
  "addJob",
  "addJobs",
  "cleanup",
  "completeJobs",
  "permanentlyFailJobs",
  "release",
  "figures",
];
const NO_COMMANDS_EITHER = ["forceUnlockWorkers", "withPgClient", "logger", "events"];
/** They read views, or several verbs at once. */
const NO_VERBS = ["init", "audit", "jobs", "policies", "top", "ui"];

test("a command has the name of its verb in TypeScript, and every verb is a command", async (t) => {
  const { utils } = await world(t);
  const verbs = Object.keys(utils).filter((name) => ![...NO_COMMANDS, ...NO_COMMANDS_EITHER].includes(name));
  t.deepEqual(NAMES.map(camelCase).toSorted(), [...verbs, ...NO_VERBS].toSorted());
});

/** Views show the first ones. The others need a process: PGlite, the server's catalogs, the preset's ages, files. */
const NOT_IN_SQL = [
  "groups",
  "history",
  "limits",
  "partitions",
  "status",
  "stops",
  "diff",
  "doctor",
  "migrate",
  "sweep",
];

test("every other verb is a SQL function of its name; enable and disable are one", async (t) => {
  const { utils, pool } = await world(t);
  const { rows } = await pool.query(
    `select distinct proname as name from pg_proc
     where pronamespace = 'dispatch_policy'::regnamespace and not starts_with(proname, '_')`,
  );
  const inSql = new Set(rows.map(({ name }) => camelCase(name.replaceAll("_", "-"))));
  t.true(inSql.has("switchPolicy"));
  const verbs = Object.keys(utils).filter((name) => NAMES.map(camelCase).includes(name));
  const missing = verbs.filter((name) => !inSql.has(name) && !["enable", "disable"].includes(name));
  t.deepEqual(missing.toSorted(), NOT_IN_SQL.toSorted());
});
