// docs/options.md: every option, where it is set, its type, its default and what it means.
import { type Options, PLACE } from "../../src/cli/command.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { ADAPTIVE_CONCURRENCY } from "../../src/gates/adaptive-concurrency.ts";
import { CONCURRENCY } from "../../src/gates/concurrency.ts";
import type { GateAnatomy } from "../../src/gates/gate.ts";
import { THROTTLE } from "../../src/gates/throttle.ts";
import { type Member, membersOf } from "./members.ts";
import { shown } from "./stated.ts";
import { rows } from "./table.ts";

export const PRESET = membersOf("src/settings.ts", "DispatchPolicyOptions");
export const POLICY = membersOf("src/policy/options.ts", "PolicyOptions");
export const POLICY_JOB = membersOf("src/policy/job.ts", "JobDefaults");
export const GATE = membersOf("src/gates/gate.ts", "GateCommon");
export const JOB = membersOf("src/policy/job.ts", "JobSpec");
const UTILS = membersOf("src/host/policy-utils.ts", "PolicyUtilsOptions");
const TICK = membersOf("src/admit/tick-task.ts", "TickPayload");
const UI = membersOf("src/ui/create-ui.ts", "UiSettings");
const LOOP = membersOf("src/host/run-tick-loop.ts", "RunTickLoopOptions");

/** The gates, each with the code that reads its options. */
export const GATES: readonly { factory: string; members: readonly Member[]; anatomy: GateAnatomy }[] = [
  { factory: "throttle", members: membersOf("src/gates/throttle.ts", "ThrottleOptions"), anatomy: THROTTLE },
  {
    factory: "concurrency",
    members: membersOf("src/gates/concurrency.ts", "ConcurrencyOptions"),
    anatomy: CONCURRENCY,
  },
  {
    factory: "adaptiveConcurrency",
    members: membersOf("src/gates/adaptive-concurrency.ts", "AdaptiveConcurrencyOptions"),
    anatomy: ADAPTIVE_CONCURRENCY,
  },
];

/** Where a page tells more of an option. */
const MORE: Readonly<Record<string, string>> = {
  ahead: "gates.md#just-ahead-of-the-workers",
  backoff: "retries.md#back-off",
  breaker: "retries.md#breaker",
  class: "gates.md#classes",
  classShare: "gates.md#classes",
  "concurrency.cost": "gates.md#slots-by-cost",
  cost: "gates.md#costs",
  debounce: "adding-jobs.md#debounce",
  expiresAfter: "adding-jobs.md#jobs-that-expire",
  expiresAt: "adding-jobs.md#jobs-that-expire",
  fairness: "gates.md#fairness",
  history: "operating.md#what-happened-to-a-job",
  load: "operating.md#what-would-have-happened",
  maxPending: "adding-jobs.md#a-bounded-backlog",
  order: "retries.md#strict-order",
  "order.deadline": "gates.md#earliest-deadline-first",
  perWorker: "gates.md#a-share-for-each-worker",
  refundAttempt: "retries.md#a-server-says-come-back-later",
  retries: "retries.md#after-a-failure",
  runTimeout: "retries.md#a-run-takes-too-long",
  shadow: "gates.md#shadow-gates",
  shardBy: "gates.md#shards",
  slotTimeout: "retries.md#a-run-takes-too-long",
  uniqueFor: "adding-jobs.md#unique-for-a-time",
  unmanaged: "adding-jobs.md#jobs-added-past-a-policy",
  version: "production.md#which-definition-is-in-force",
  whenBusy: "adding-jobs.md#when-the-gates-are-busy",
  whenRunning: "adding-jobs.md#the-newest-wins",
};

export interface Flag {
  /** The command that takes it, or "every command". */
  readonly command: string;
  readonly flag: string;
  readonly meaning: string;
  readonly default: string;
}

const COMMANDS_LOADED = await Promise.all(
  COMMANDS.map(async ({ name, load }) => ({ name, ...(await load()).command })),
);

/** The options of the commands, in the order of the help. */
export const FLAGS: readonly Flag[] = [
  ...flagsOf("every command", PLACE),
  ...COMMANDS_LOADED.flatMap(({ name, options }) => flagsOf(code(name), options)),
];

function flagsOf(command: string, options: Options): Flag[] {
  return Object.entries(options).map(([option, { meaning, default: fallback, letter }]) => ({
    command,
    flag: letter === undefined ? `--${option}` : `-${letter}, --${option}`,
    meaning,
    default: fallback ?? "required",
  }));
}

export const VARIABLES = ["DATABASE_URL", "DISPATCH_POLICY_SCHEMA", "GRAPHILE_WORKER_SCHEMA", "PGDATABASE"];

/** They say where a preset connects that names no connection. */
const OF_PRESETS = ["DATABASE_URL", "PGDATABASE"];

/** The whole page. */
export function optionsPage(): string {
  return `# Options

This page is generated from the docstrings by \`npm run docs\`. Do not edit it.

| you set | in | which applies to |
|---|---|---|
| [the preset's options](#preset) | \`dispatchPolicyPreset({ … })\` | the worker process, and the policies without a setting of their own |
| [a policy's options](#policy) | \`definePolicy("task", { … })\` | the jobs of the policy's tasks |
| [a gate's options](#gates) | \`gates\` of the policy. Operators change them for a time by \`setLimit\`, in SQL \`set_limit\` | the jobs of a partition, of a key or of the policy |
| [a job's options](#job) | \`addPolicyJob\`, \`addPolicyJobs\`, \`addJob\`, \`addJobs\` | this job |
| [other options](#utils-and-loops) | \`makePolicyUtils\`, \`runTickLoop\`, \`wrapTaskList\` | the process |
| [the tick's payload](#crontab) | the crontab | this run of the task |
| [variables](#environment) | the environment | the process |

- A duration is a text: a number, a space and a unit, such as \`"30 seconds"\`, \`"500 ms"\` or \`"1.5 minutes"\`. A bare number is refused.
- \`(ctx) => …\` is a function of the policy's \`context\`. It is called when a job is added.
- An unknown option or a wrong value is an error, which names the option and what was expected.
- Names that are links lead to the rest.
- The [glossary](engine.md#one-word-for-each-thing) explains words such as staged job, tick, pass, slot and sweep.

## Preset

\`dispatchPolicyPreset({ policies, … })\`. Only \`policies\` is required.

${table(PRESET)}

## Policy

\`definePolicy("task", { partitionBy, … })\`. More: [adding jobs](adding-jobs.md), [gates and fairness](gates.md), [retries](retries.md).

${table(POLICY)}

### Defaults for its jobs

The policy's option \`job\`. Options that a job is added with take precedence.

${table(POLICY_JOB.map((member) => ({ ...member, name: `job.${member.name}` })))}

## Gates

\`gates: ({ throttle, concurrency, adaptiveConcurrency }) => [ … ]\`. More: [gates](gates.md).

All gates have these options:

${table(GATE)}

The last column says which number an operator may change for a time. \`utils.setLimit\` takes the option's own name, and a value of its type that is no function. \`set_limit\` in SQL takes the name and the value of the last column.

${GATES.map(gateSection).join("\n\n")}

## Job

The argument after the payload in \`addPolicyJob\` and \`addJob\`. In \`addPolicyJobs\` and \`addJobs\` they stand beside the payload, and in SQL they are parameters of \`add_job\`: \`queue_name\`, \`run_at\` and so on.

${table(JOB.filter(({ name }) => !name.includes(".")))}

## Utils and loops

\`makePolicyUtils\` and \`addJobAdhoc\` take the options of Graphile Worker's \`makeWorkerUtils\`, and these:

${table(UTILS)}

\`runTickLoop\` takes all of them, and these:

${table(LOOP)}

\`wrapTaskList\` takes the preset's \`policies\` and \`schema\`, and \`events\`: the emitter of this package's events, by default none.

## Crontab

The crontab's task \`dispatch_policy_tick\` takes these in its payload:

${table(TICK)}

## Environment

${rows(
  ["variable", "default of"],
  VARIABLES.map((name) => [code(name), usersOf(name).join(", ")]),
)}
`;
}

function gateSection({ factory, members, anatomy }: (typeof GATES)[number]): string {
  const body = members.map((member) => {
    const field = anatomy.fields[member.name];
    const override = field?.override ? `${code(field.column)}: ${field.override.expects}` : "–";
    return [...cells(member, `${factory}.${member.name}`), override];
  });
  return `### ${factory}\n\n${rows(["option", "type", "default", "meaning", "override"], body)}`;
}

/** The options and flags whose default names this variable. */
function usersOf(variable: string): string[] {
  const named = (fallback: string | undefined) => fallback?.includes(variable) === true;
  return [
    ...PRESET.filter((member) => named(member.default)).map(({ name }) => `${code(name)} of the preset`),
    ...UTILS.filter((member) => named(member.default)).map(
      ({ name }) => `${code(name)} of \`makePolicyUtils\``,
    ),
    ...UI.filter((member) => named(member.default)).map(({ name }) => `${code(name)} of \`createUi\``),
    ...(OF_PRESETS.includes(variable) ? ["the connection of `createUi({ preset })`"] : []),
    ...FLAGS.filter((flag) => named(flag.default)).map(({ flag }) => code(flag)),
  ];
}

function table(members: readonly Member[]): string {
  return rows(
    ["option", "type", "default", "meaning"],
    members.map((member) => cells(member)),
  );
}

function cells({ name, type, required, default: fallback, meaning }: Member, full = name): string[] {
  const more = MORE[full] ?? MORE[name];
  return [
    more === undefined ? code(name) : `[${code(name)}](${more})`,
    code(type),
    fallback === undefined ? (required ? "required" : "") : shown(fallback),
    meaning,
  ];
}

function code(text: string): string {
  return `\`${text}\``;
}
