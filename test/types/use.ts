// biome-ignore-all format: an expected error must stay on the line below its comment

import type { AddJobFunction, AddJobsFunction, Job, JobHelpers, Task, TaskList, WorkerUtils } from "graphile-worker";
import { makeWorkerUtils, run, WorkerPreset } from "graphile-worker";
import pg from "pg";
import { addJobAdhoc, addPolicyJob, addPolicyJobs, dispatchPolicyPreset, type JobGroup, makePolicyUtils, type Policy, rateLimitFromHeaders, wrapTaskList } from "../../src/index.ts";
import { admitUntilIdle, tickAt } from "../../src/testing.ts";
import { createUi, toNodeHandler } from "../../src/ui/ui.ts";
import type {} from "./circular.ts";
import { fetchEndpoint, sendEmail, unknownTask } from "./policies.ts";

const pool = new pg.Pool(); const client = await pool.connect(); const single = new pg.Client();
const ok = { endpointId: "e", accountId: "a", ratePerMinute: 3 };
interface Counted { to: string; _group: JobGroup }
declare const counted: Policy<"counted", Counted, Counted>;
const maybe: Date | undefined = Math.random() > 0.5 ? new Date() : undefined;

// --- addPolicyJob
const s = await addPolicyJob(client, fetchEndpoint, ok, { runAt: maybe, expiresAt: maybe, expiresAfter: "15 minutes", jobKeyMode: "preserve_run_at" });
await addPolicyJob(client, fetchEndpoint, ok, { jobKey: "k", debounce: { wait: "5 seconds", maxWait: "1 minute" } });
await addPolicyJob(pool, sendEmail, { to: "x", meta: { tenant: "t", size: 1 } });
await addPolicyJob(single, unknownTask, { whatever: true });
// @ts-expect-error wrong type
await addPolicyJob(client, fetchEndpoint, { ...ok, ratePerMinute: "3" });
// @ts-expect-error missing
await addPolicyJob(client, fetchEndpoint, { endpointId: "e" });
// @ts-expect-error unknown spec key
await addPolicyJob(client, fetchEndpoint, ok, { run_at: new Date() });
// @ts-expect-error payload from Tasks
await addPolicyJob(client, sendEmail, { to: "x" });
const job: Job = s; const isStaged: true = s.staged; void job; void isStaged; s.run_at.getTime(); s.id.length;

// --- addPolicyJobs: a tuple of different policies, and a mapped array of one
await addPolicyJobs(client, [{ policy: fetchEndpoint, payload: ok, priority: 3 }, { policy: sendEmail, payload: { to: "x", meta: { tenant: "t", size: 1 } } }]);
await addPolicyJobs(client, Array.from({ length: 3 }, (_, i) => ({ policy: fetchEndpoint, payload: { ...ok, ratePerMinute: i } })));
// @ts-expect-error payloads swapped
await addPolicyJobs(client, [{ policy: sendEmail, payload: ok }]);

// --- a callback: typed by its policy, without the counts that are added to its payload
await addPolicyJobs(client, [{ policy: fetchEndpoint, payload: ok }], { then: { policy: sendEmail, payload: { to: "x", meta: { tenant: "t", size: 1 } }, wait: "1 minute" } });
await addPolicyJobs(client, [], { then: { policy: counted, payload: { to: "x" } } });
await addPolicyJobs(client, [], { then: { policy: unknownTask, payload: { whatever: true } } });
// @ts-expect-error payload of another policy
await addPolicyJobs(client, [], { then: { policy: sendEmail, payload: ok } });
// @ts-expect-error a call of several jobs has no jobKeyMode
await addPolicyJobs(client, [], { then: { policy: sendEmail, payload: { to: "x", meta: { tenant: "t", size: 1 } }, jobKeyMode: "replace" } });

// --- makePolicyUtils
const utils = await makePolicyUtils({ connectionString: "x", policies: [fetchEndpoint, sendEmail, unknownTask] });
const a = await utils.addJob("fetch_endpoint", ok, { priority: 1 });
if (a.staged) a.partition; else a.locked_at;
await utils.addJob("plain_task", { n: 1 });
await utils.addJob("never_declared", { anything: 1 });
const dyn: string = "x"; await utils.addJob(dyn, { anything: 1 });
await utils.addJob(fetchEndpoint, ok, { jobKey: "k" }).then((j) => { const st: true = j.staged; void st; });
// @ts-expect-error payload checked by the policy
await utils.addJob(fetchEndpoint, { endpointId: 1 });
// @ts-expect-error registered in GraphileWorker.Tasks from the policy: checked by name too
await utils.addJob("declared_once", { tennant: "x" });
await utils.addJob("declared_once", { tenant: "x" });
// @ts-expect-error plain task payload is still checked
await utils.addJob("plain_task", { n: "1" });
await utils.addJobs([{ identifier: "fetch_endpoint", payload: ok }, { identifier: "plain_task", payload: { n: 1 } }]);
await utils.tick({ policy: "fetch_endpoint", now: new Date() });
await utils.completeJobs([a.id]);

// --- drop-in: PolicyUtils where WorkerUtils is expected
const asWorkerUtils: WorkerUtils = utils; void asWorkerUtils;
const asAddJob: AddJobFunction = utils.addJob; const asAddJobs: AddJobsFunction = utils.addJobs; void asAddJob; void asAddJobs;
const fn = (u: Pick<WorkerUtils, "addJob">): Promise<Job> => u.addJob("plain_task", { n: 1 }); await fn(utils);
await addJobAdhoc({ connectionString: "x", policies: [fetchEndpoint] }, "fetch_endpoint", ok);

// --- preset
const preset: GraphileConfig.Preset = { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [fetchEndpoint, sendEmail] })], worker: { concurrentJobs: 4 } };
const sat = dispatchPolicyPreset({ policies: [fetchEndpoint] }) satisfies GraphileConfig.Preset; void sat;
const fromPreset = await makePolicyUtils({ preset }); await fromPreset.addJob("fetch_endpoint", ok);
await run({ preset, taskList: wrapTaskList({ plain_task: async (p) => { p; } }, { policies: [fetchEndpoint] }) });
await makeWorkerUtils({ preset });

// --- tasks
export const t1: Task<"fetch_endpoint"> = fetchEndpoint.task(async (payload, helpers) => {
  payload.endpointId.length; payload.at?.getTime();
  await helpers.dispatchPolicy.hold({ forMs: 1000 }); await helpers.dispatchPolicy.hold({ gate: "account", key: maybe?.toISOString(), forMs: 1000 });
  const { taken } = await helpers.dispatchPolicy.take({ gate: "all" }); void taken;
  helpers.dispatchPolicy.settle({ cost: 17 }); helpers.dispatchPolicy.settle({ gate: "throttle", cost: 17 });
  // @ts-expect-error what did it cost
  helpers.dispatchPolicy.settle({ gate: "throttle" });
  const { remaining, resetAt } = rateLimitFromHeaders(new Headers());
  if (remaining !== null) (await helpers.dispatchPolicy.sync({ gate: "throttle", remaining, resetAt })).tokens satisfies number | null;
  const j = await helpers.addJob("plain_task", { n: 2 }); j.id;
  // @ts-expect-error
  payload.nope;
});
export const t2: Task<"send_email"> = async (payload, helpers: JobHelpers) => {
  payload.meta.tenant.length;
  await helpers.dispatchPolicy?.hold({ until: new Date() });
  // @ts-expect-error possibly undefined in a plain Task
  await helpers.dispatchPolicy.hold({ until: new Date() });
};
const list: TaskList = { fetch_endpoint: t1, send_email: t2 }; void list;

// --- operate
await utils.pause({ policy: "fetch_endpoint", reason: "incident 12", by: "ana" }); await utils.pause({ policy: fetchEndpoint, partition: "acct:1" });
await utils.limits({ policy: fetchEndpoint }); await utils.move({ policy: fetchEndpoint, partition: "a", toPolicy: sendEmail }); await utils.tick({ policy: fetchEndpoint });
// @ts-expect-error neither a policy nor its name
await utils.pause({ policy: { identifier: "fetch_endpoint" } });
await utils.pause({ policy: "fetch_endpoint", partition: "acct:1", until: new Date() });
await utils.pause({ all: true, reason: "deploy" });
await utils.resume({ policy: "fetch_endpoint", partition: "acct:1" });
await utils.hold({ policy: "fetch_endpoint", partition: "acct:1", forMs: 30_000, reason: "429" });
await utils.admit({ policy: "fetch_endpoint", partition: "acct:1", count: 5 });
await utils.admit({ policy: "fetch_endpoint", drain: true, dryRun: true });
const adopted: number = (await utils.adopt({ task: "fetch_endpoint", dryRun: true, by: "ana" })).changed;
await utils.setLimit({ policy: "fetch_endpoint", gate: "account", key: "acct:1", set: { max: 0 }, until: new Date(), by: "ana" });
await utils.setLimit({ policy: "fetch_endpoint", gate: "throttle", where: { plan: "free", seats: 3, trial: true }, set: { rate: 5 } });
await utils.clearLimit({ policy: "fetch_endpoint", gate: "throttle", where: { plan: "free" } });
// @ts-expect-error a context value is a text, a number or a boolean
await utils.setLimit({ policy: "fetch_endpoint", gate: "throttle", where: { plan: ["free"] }, set: { rate: 5 } });
(await utils.sync({ policy: "fetch_endpoint", gate: "throttle", key: "acct:1", remaining: 3, resetAt: maybe })).lowered satisfies boolean;
// @ts-expect-error tokens are taken from one bucket
await utils.take({ policy: "fetch_endpoint", gate: "throttle", where: { plan: "free" } });
await utils.refreshContext({ policy: "fetch_endpoint", partition: "acct:1", context: { plan: "pro" }, by: "ana" });
await utils.refreshContext({ policy: "fetch_endpoint", where: { account: "acme" }, context: {} });
for (const stop of await utils.stops({ policy: "fetch_endpoint" })) stop.kind satisfies "pause" | "hold" | "breaker";
const [found] = await utils.doctor({ thresholds: { notifyQueue: 0.5, deadRows: undefined } }); if (found?.id === "no-worker") found.severity satisfies "critical" | "warning" | "info";
// @ts-expect-error no such finding
if (found?.id === "no-workers") found.mend;
await utils.explain({ id: a.id }); await utils.explain({ policy: "fetch_endpoint", partition: "acct:1" });
// a time that is undefined is one that was not given
await utils.pause({ policy: "fetch_endpoint", until: maybe });
await utils.setLimit({ policy: "fetch_endpoint", gate: "all", set: { rate: 1 }, from: maybe, until: maybe });
(await utils.diff({ policy: "fetch_endpoint", definition: fetchEndpoint, forMs: 60_000 })).notReplayed satisfies readonly string[];
// @ts-expect-error a definition or a gate
await utils.diff({ policy: "fetch_endpoint", definition: fetchEndpoint, gate: "throttle", set: { rate: 5 } });
const whatIf = await utils.diff({ policy: "fetch_endpoint", gate: "throttle", where: { plan: "free" }, set: { rate: 5, per: "1 second" }, forMs: 60_000 });
const wouldWait: number | undefined = whatIf.partitions[0]?.after.waiting.to; void wouldWait;
const [past] = await utils.history({ policy: "fetch_endpoint", outcome: "failed", since: new Date() });
const throttled: number | undefined = past?.waited.throttle_empty; void throttled;
// @ts-expect-error no such outcome
await utils.history({ outcome: "ok" });
// @ts-expect-error no such number
await utils.diff({ policy: "fetch_endpoint", gate: "throttle", set: { rates: 5 } });
await utils.tick({ now: maybe }); await tickAt(utils, new Date()); await admitUntilIdle(utils, { now: maybe });
await utils.hold({ policy: "fetch_endpoint", partition: "acct:1", forMs: 30_000, until: undefined });
// and so is any other option
const absent = undefined;
await utils.admit({ policy: "fetch_endpoint", partition: absent, drain: true, dryRun: absent, reason: absent });
await utils.adopt({ task: "fetch_endpoint", dryRun: absent }); await utils.unstage({ policy: "fetch_endpoint", dryRun: absent });
await utils.move({ policy: "fetch_endpoint", partition: "acct:1", toPartition: absent, toPolicy: "x", ids: absent, dryRun: absent }); for await (const { spec } of utils.export({ policy: "x", partition: absent })) spec.runAt satisfies Date;
await utils.cancel({ policy: "fetch_endpoint", partition: absent, dryRun: absent, reason: "left us" }); await utils.cancel({ ids: [a.id], by: absent });
await utils.remove({ ids: [a.id], dryRun: absent }); await utils.retry({ ids: [a.id], since: absent, error: absent }); await utils.uninstall({ force: absent });
const removing: RemovePolicyOptions = { policy: "old", into: absent, dryRun: absent }; await utils.removePolicy(removing);
await utils.setLimit({ policy: "x", gate: "all", set: { rate: absent, per: absent, burst: absent, max: absent, initialMax: absent, targetLagMs: absent, min: absent } });
await utils.rescheduleJobs([a.id], { runAt: absent, priority: absent, attempts: absent, maxAttempts: absent });
await addPolicyJob(pool, fetchEndpoint, ok, {}, { schema: absent }); await addPolicyJobs(pool, [], { schema: absent });
// @ts-expect-error one end, not two
await utils.hold({ policy: "fetch_endpoint", partition: "acct:1", forMs: 30_000, until: new Date() });
// @ts-expect-error a hold's end may not be missing
await utils.hold({ policy: "fetch_endpoint", partition: "acct:1", until: maybe });
// @ts-expect-error a time is a Date, no number
await utils.pause({ policy: "fetch_endpoint", until: Date.now() });
// @ts-expect-error a target is required
await utils.pause({ reason: "oops" });
// @ts-expect-error an undefined policy must not mean everything
await utils.pause({ policy: undefined });
// @ts-expect-error hold needs an end
await utils.hold({ policy: "x", partition: "y" });
await utils.hold({ policy: "x", gate: "account", key: "acme", forMs: 1 }); await utils.hold({ policy: "x", gate: "all", until: new Date() });
// @ts-expect-error a partition or a key, not both
await utils.hold({ policy: "x", partition: "y", gate: "account", key: "acme", forMs: 1 });
// @ts-expect-error hold needs a partition
await utils.hold({ policy: "x", forMs: 1 });

import { policyEvents, type RemovePolicyOptions, RetryAfter } from "../../src/index.ts";

const runner = await run({ preset, taskList: {} });
policyEvents(runner.events).on("dispatchPolicy:deny", (e) => { e.reason satisfies string; });
// @ts-expect-error a bare number is no duration
new RetryAfter(30);
new RetryAfter("30 seconds", { reason: "429" });

// --- createUi: of a pool or of a preset
const authorize = () => null;
await using ui = createUi({ pool, authorize });
await createUi({ preset: { extends: [WorkerPreset, dispatchPolicyPreset({ policies: [fetchEndpoint] })] }, authorize }).release();
ui satisfies (request: Request) => Promise<Response>; toNodeHandler(ui); toNodeHandler((request) => ui(request));
// @ts-expect-error neither
createUi({ authorize });
// @ts-expect-error both
createUi({ pool, preset: {}, authorize });
// @ts-expect-error nobody says who asks
createUi({ preset: {} });
