/** More jobs than a month's quota. What is left waits, and says until when. DATABASE_URL names the database. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { lookUp } from "./policies.ts";

const JOBS = 20;
const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});
const preset = {
  extends: [WorkerPreset, dispatchPolicyPreset({ policies: [lookUp] })],
  worker: {
    connectionString: process.env.DATABASE_URL ?? "postgres:///app",
    concurrentJobs: 4,
    logger: problemsOnly,
  },
} satisfies GraphileConfig.Preset;

const startedAt: number[] = [];
const taskList = { look_up: lookUp.task(() => void startedAt.push(performance.now())) };

const utils = await makePolicyUtils({ preset }); // creates both schemas
await utils.addJobs(
  Array.from({ length: JOBS }, (_, order) => ({
    identifier: "look_up",
    payload: { account: "acme", order },
  })),
);
const runner = await run({ preset, taskList });
const ask = () => utils.explain({ policy: "look_up", partition: "acme" });
let answer = await ask();
while (startedAt.length < JOBS && (answer.gate !== "month" || answer.inFlight !== 0)) {
  await delay(50);
  answer = await ask();
}
await runner.stop();
await utils.release();

const took = startedAt.at(-1)! - startedAt[0]!;
console.log(`started ${startedAt.length} of ${JOBS} jobs in ${(took / 1000).toFixed(1)} s`);
console.log(`${answer.staged} wait for gate "${answer.gate}" until ${answer.nextAt?.toISOString()}`);
