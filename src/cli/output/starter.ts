// The files with which a project begins.

import { TICK_TASK } from "../../policy/job.ts";
import { definePolicy } from "../../policy/policy.ts";

/** What a project has already. */
export interface Found {
  /** Whether its .js files are modules. */
  readonly isModule: boolean;
  readonly isTypeScript: boolean;
  readonly config: Code | undefined;
  /** Its file of policies. */
  readonly policies: Code | undefined;
  /** The text of its crontab. */
  readonly crontab: string | undefined;
  /** Whether its folder of tasks has one of this name. */
  readonly hasTask: boolean;
}

/** A file that is there, and that only its user may change. */
export interface Code {
  readonly name: string;
  readonly text: string;
}

/** A file that `init` writes. */
export interface StarterFile {
  readonly name: string;
  readonly text: string;
  /** True: the file is there, and the text is added at its end. */
  readonly isAdded: boolean;
}

export interface Starter {
  readonly files: readonly StarterFile[];
  /** What the user does by hand, because it stands in files that only they may change. */
  readonly steps: readonly string[];
}

export const CRONTAB = "crontab";
const TICK_LINE = `* * * * * ${TICK_TASK} ?jobKey=${TICK_TASK}`;

/**
 * The files that the project lacks, and what is left to do. An existing configuration and an existing file of policies stay as
 * they are, because they are code.
 *
 * @throws {PolicyDefinitionError} if a policy cannot have this name or this path
 */
export function starterOf(found: Found, task: string, partitionBy: string): Starter {
  definePolicy(task, { partitionBy });
  const extension = found.isModule ? (found.isTypeScript ? "ts" : "js") : "mjs";
  const name = nameOf(task);
  const policies = found.policies?.name ?? `policies.${extension}`;
  const policy = policyText(name, task, partitionBy);
  const files: StarterFile[] = [];
  const steps: string[] = [];
  if (found.policies === undefined) files.push({ name: policies, text: policy, isAdded: false });
  else if (!declares(found.policies.text, task))
    steps.push(`Add the policy to ${policies}:\n${indented(policy)}`);
  if (found.config === undefined)
    files.push({
      name: `graphile.config.${extension}`,
      text: configText(name, policies, extension),
      isAdded: false,
    });
  else if (!found.config.text.includes("dispatchPolicyPreset"))
    steps.push(
      `Add the preset to "extends" of ${found.config.name}:\n${indented(`${importText(name, policies)}\n${presetText(name)}`)}`,
    );
  else if (!declares(found.policies?.text ?? "", task))
    steps.push(`Add ${name} of ${policies} to the policies of dispatchPolicyPreset in ${found.config.name}`);
  if (!new RegExp(`^[^#\\n]*\\b${TICK_TASK}\\b`, "m").test(found.crontab ?? ""))
    files.push({ name: CRONTAB, text: crontabText(found.crontab), isAdded: found.crontab !== undefined });
  if (!found.hasTask) steps.push(`Write the task: tasks/${task}.${extension}`);
  return { files, steps };
}

/** Whether code declares the policy, as far as its text shows. */
function declares(text: string, task: string): boolean {
  return [`"${task}"`, `'${task}'`].some((name) => text.includes(`definePolicy(${name}`));
}

function policyText(name: string, task: string, partitionBy: string): string {
  return `import { definePolicy } from "graphile-worker-dispatch-policy";

/** Jobs of ${task}: each ${partitionBy} has its own limits. */
export const ${name} = definePolicy(${JSON.stringify(task)}, {
  partitionBy: ${JSON.stringify(partitionBy)},
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: 60, per: "1 minute" }), // starts, by each ${partitionBy}
    concurrency({ max: 5 }), // jobs at once, by each ${partitionBy}
  ],
});
`;
}

function configText(name: string, policies: string, extension: string): string {
  const preset = `{
  extends: [WorkerPreset, ${presetText(name)}],
  worker: { connectionString: process.env.DATABASE_URL ?? "postgres:///app", concurrentJobs: 10 },
}`;
  const imports = `import { WorkerPreset } from "graphile-worker";\n${importText(name, policies)}`;
  if (extension === "ts") return `${imports}\nexport default ${preset} satisfies GraphileConfig.Preset;\n`;
  return `${imports}\n/** @type {GraphileConfig.Preset} */\nexport default ${preset};\n`;
}

function importText(name: string, policies: string): string {
  return `import { dispatchPolicyPreset } from "graphile-worker-dispatch-policy";\nimport { ${name} } from "./${policies}";\n`;
}

function presetText(name: string): string {
  return `dispatchPolicyPreset({ policies: [${name}] })`;
}

function crontabText(before: string | undefined): string {
  const gap = before === undefined || before === "" || before.endsWith("\n") ? "" : "\n";
  return `${gap}# The safety net of dispatch policies: it admits jobs if no worker's loop does.\n${TICK_LINE}\n`;
}

/** The task's name as JavaScript writes it. */
function nameOf(task: string): string {
  const [first = "", ...others] = task.split(/[^A-Za-z0-9]+/).filter(Boolean);
  const capital = (word: string) => word.slice(0, 1).toUpperCase() + word.slice(1);
  const name = first.slice(0, 1).toLowerCase() + first.slice(1) + others.map(capital).join("");
  return /^[A-Za-z]/.test(name) ? `${name}Policy` : "policy";
}

function indented(text: string): string {
  return text.trimEnd().replace(/^(?=.)/gm, "    ");
}
