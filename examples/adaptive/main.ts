/** A partner that takes eight requests at once, then three, then eight. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { askPartner } from "./policies.ts";

const TENANTS = { large: "pro", small: "free" } as const;
const BACKLOG = 150; // of each tenant
/** How many requests the partner takes at once, after so many answers. */
const takesAfter = (answers: number) => (answers >= 80 && answers < 140 ? 3 : 8);

// a refusal is an error of its job for Graphile Worker, which logs it; here only other problems are shown
const problemsOnly = new Logger(() => (level, message) => {
  if ((level === "error" || level === "warning") && !message.includes("busy")) console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [askPartner] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 16,
    maxPoolSize: 16, // Graphile Worker warns if its pool is smaller than its slots
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

let atOnce = 0;
let refused = 0;
/** Whose question was answered, and how many were asked at that time. */
const answers: { readonly tenant: string; readonly atOnce: number }[] = [];
const { promise: done, resolve: finish } = Promise.withResolvers<void>();
const taskList = {
  ask_partner: askPartner.task(async ({ tenant }) => {
    const now = ++atOnce;
    try {
      if (now > takesAfter(answers.length)) {
        refused++;
        throw new Error("the partner is busy");
      }
      await delay(30);
      if (answers.push({ tenant, atOnce: now }) === 2 * BACKLOG) finish();
    } finally {
      atOnce--;
    }
  }),
};

const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs(
  Object.entries(TENANTS).flatMap(([tenant, plan]) =>
    Array.from({ length: BACKLOG }, (_, question) => ({
      identifier: "ask_partner",
      payload: { tenant, plan, question },
    })),
  ),
);
await utils.release();
const runner = await run({ preset, taskList });
await done;
await runner.stop();

const most = (part: typeof answers) => Math.max(...part.map((answer) => answer.atOnce));
const of = (tenant: string, part: typeof answers) => part.filter((answer) => answer.tenant === tenant).length;
const [fast, slow] = [answers.slice(0, 80), answers.slice(90, 140)];
console.log(
  `answered ${answers.length} of ${2 * BACKLOG} questions; the partner refused ${refused} requests`,
);
console.log(`up to ${most(fast)} were answered at once, and ${most(slow)} while it took three`);
console.log(
  `of the first 140 answers: large ${of("large", answers.slice(0, 140))}, small ${of("small", answers.slice(0, 140))}`,
);
