/** A model that refuses more than six requests at once. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { askModel, estimated } from "./policies.ts";

const PROMPTS = 60;
const MODEL_TAKES = 6;
// a refusal is an error of its job for Graphile Worker, which logs it; here only other problems are shown
const problemsOnly = new Logger(() => (level, message) => {
  if ((level === "error" || level === "warning") && !message.includes("overloaded")) console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [askModel] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 10,
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

/** The model counts exactly, and hardly any answer is as long as it may be. */
const used = (prompt: string, n: number) => Math.ceil(prompt.length / 4) + 40 + (n % 5) * 20;

let estimates = 0;
let costs = 0;
let atOnce = 0;
let most = 0;
let refused = 0;
let answered = 0;
const { promise: done, resolve: finish } = Promise.withResolvers<void>();
const taskList = {
  ask_model: askModel.task(async ({ prompt }, { dispatchPolicy }) => {
    atOnce++;
    most = Math.max(most, atOnce);
    try {
      if (atOnce > MODEL_TAKES) {
        refused++;
        dispatchPolicy.settle({ cost: 0 }); // all of the estimate comes back
        throw new Error("the model is overloaded");
      }
      await delay(40);
      const cost = used(prompt, answered);
      dispatchPolicy.settle({ cost }); // the rest of the estimate comes back
      costs += cost;
      estimates += estimated(prompt);
    } finally {
      atOnce--;
    }
    if (++answered === PROMPTS) finish();
  }),
};

const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs(
  Array.from({ length: PROMPTS }, (_, n) => ({
    identifier: "ask_model",
    payload: { tenant: `tenant ${n % 5}`, prompt: `Summarise page ${n}.` },
  })),
);
await utils.release();
const runner = await run({ preset, taskList });
await done;
await runner.stop();
console.log(`answered ${answered} of ${PROMPTS} prompts; the model refused ${refused} requests`);
console.log(`they were estimated at ${estimates} tokens, and cost ${costs}`);
console.log(`the limit began at 2 and let up to ${most} requests go at once`);
