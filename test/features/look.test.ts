import test from "ava";
import {
  concurrency,
  definePolicy,
  type Explanation,
  makePolicyUtils,
  type Override,
  type PartitionStatus,
  UnknownPolicyError,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";
import { type Ctx, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";

async function world(t: Parameters<typeof testDatabase>[0]) {
  const { url } = await testDatabase(t);
  const utils = await makePolicyUtils({ connectionString: url, policies: [greet], logger: silent });
  t?.teardown(async () => utils.release());
  return utils;
}

test("explain says which gate a job waits for", async (t) => {
  const utils = await world(t);
  await utils.addJob(greet, { name: "Ana" });
  const second = await utils.addJob(greet, { name: "Ana" });
  await utils.tick();
  t.is((await utils.explain({ id: second.id })).reason, "concurrency_full");
  t.is((await utils.explain({ policy: "greet", partition: "Ana" })).reason, "concurrency_full");
});

test("explain tells a pause of the policy, of the partition, and a hold", async (t) => {
  const utils = await world(t);
  const job = await utils.addJob(greet, { name: "Ana" });
  await utils.pause({ policy: "greet" });
  await utils.tick();
  t.is((await utils.explain({ id: job.id })).reason, "paused");
  await utils.resume({ policy: "greet" });
  await utils.pause({ policy: "greet", partition: "Ana" });
  await utils.tick();
  t.is((await utils.explain({ id: job.id })).reason, "paused");
  await utils.resume({ policy: "greet", partition: "Ana" });
  await utils.hold({ policy: "greet", partition: "Ana", forMs: 60_000 });
  t.is((await utils.explain({ policy: "greet", partition: "Ana" })).reason, "held");
});

test("a hold and a pause of a partition that no job has made yet both keep", async (t) => {
  const utils = await world(t);
  const until = new Date(Date.now() + 60_000);
  await utils.hold({ policy: "greet", partition: "Bo", until });
  await utils.pause({ policy: "greet", partition: "Cy" });
  await utils.hold({ policy: "greet", partition: "Cy", until });
  for (const name of ["Bo", "Cy"]) await utils.addJob(greet, { name });
  t.is((await utils.tick()).admitted, 0);
  t.is((await utils.explain({ policy: "greet", partition: "Bo" })).reason, "held");
  t.is((await utils.explain({ policy: "greet", partition: "Cy" })).reason, "paused");
  t.is((await utils.tick({ now: new Date(until.getTime() + 1) })).admitted, 1);
});

test("explain and tick name the known policies", async (t) => {
  const utils = await world(t);
  const asked = utils.explain({ policy: "gret", partition: "Ana" });
  const error = await t.throwsAsync(asked, { instanceOf: UnknownPolicyError });
  t.regex(error?.message ?? "", /gret.*greet/);
  await t.throwsAsync(utils.tick({ policy: "gret" }), {
    instanceOf: UnknownPolicyError,
    message: /gret.*greet/,
  });
});

const namesOf = (rows: readonly PartitionStatus[]) =>
  rows.map(({ policy, partition }) => `${policy}/${partition}`).toSorted();

test("partitions of one key come together, whatever the page", async (t) => {
  const { url } = await testDatabase(t);
  const other = definePolicy("other", { partitionBy: "name" });
  const utils = await makePolicyUtils({ connectionString: url, policies: [greet, other], logger: silent });
  t.teardown(async () => utils.release());
  for (const policy of ["greet", "other"])
    for (const partition of ["a", "b"]) await utils.pause({ policy, partition });
  for (const policy of ["greet", "other"]) await utils.tick({ policy });
  t.deepEqual(namesOf(await utils.partitions({ limit: 1 })), ["greet/a", "other/a"]);
  t.deepEqual(namesOf(await utils.partitions({ limit: 1, after: "a" })), ["greet/b", "other/b"]);
  await t.throwsAsync(utils.partitions({ policy: "nope" }), { instanceOf: UnknownPolicyError });
});

test("explain of a job: staged, admitted, gone", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  const [first, second] = await it.stage("2@k");
  await it.tickNow();
  const id = first?.id ?? "";
  t.like(await it.utils.explain({ id: second?.id ?? "" }), { reason: "concurrency_full", partition: "k" });
  const admitted = await it.utils.explain({ id });
  t.like(admitted, { reason: null, stagedId: id, partition: "k", startedAt: null });
  t.true(admitted.admittedAt instanceof Date);
  const { asOf, ...again } = await it.utils.explain({ id: String(admitted.jobId) });
  t.deepEqual({ asOf: admitted.asOf, ...again }, admitted);
  t.true(asOf >= admitted.asOf);
  await it.utils.completeJobs([id]);
  await it.utils.sweep();
  t.like(await it.utils.explain({ id }), { state: "unknown", reason: null });
});

/** The fields of a type: each has to be named, and no other may be. */
const fieldsOf = <T>(fields: Record<keyof T, true>) => Object.keys(fields).toSorted();
const keysOf = (row: object) => Object.keys(row).toSorted();

const PARTITION = fieldsOf<PartitionStatus>({
  ...{
    policy: true,
    partition: true,
    id: true,
    shard: true,
    context: true,
    weight: true,
    class: true,
    staged: true,
  },
  ...{ inFlight: true, reason: true, eligibleAt: true, blockedOn: true, deniedReason: true },
  ...{
    deniedUntil: true,
    paused: true,
    pausedUntil: true,
    heldUntil: true,
    breakerUntil: true,
    breakerReason: true,
    probing: true,
  },
  ...{ stoppedBy: true, stopReason: true, decayedAdmits: true, decayedAt: true, meanWork: true },
  ...{
    admittedTotal: true,
    droppedTotal: true,
    createdAt: true,
    lastAdmittedAt: true,
    admitsAMinute: true,
    nextDueAt: true,
  },
});
type Rare = "failed" | "backlog" | "hasWorker" | "long" | "runsUsually";
/** What an explanation has of a job, beside what a partition has. Only some jobs have the fields left out. */
const JOB = fieldsOf<Omit<Explanation, keyof PartitionStatus | "groups" | "waitsFor" | Rare>>({
  ...{ traceId: true, taskIdentifier: true, cost: true, jobId: true },
  ...{ queueName: true, runAt: true, priority: true, maxAttempts: true, jobKey: true, flags: true },
  ...{ payload: true, error: true, failures: true, retryAt: true, expiresAt: true, debouncedUntil: true },
  ...{ stagedId: true, admittedAt: true, startedAt: true, workerId: true, attempts: true },
  ...{ cancelled: true, cancelledAt: true, cancelledBy: true, cancelReason: true },
  ...{
    asOf: true,
    state: true,
    acts: true,
    page: true,
    gate: true,
    nextAt: true,
    partitionId: true,
    stop: true,
    gates: true,
    place: true,
  },
  ...{ estimate: true, noEstimate: true, tickedBy: true, history: true, sentence: true, mend: true },
});

test("what is looked at has the fields its type says, in camelCase", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  const [first, second] = await it.stage("2@k");
  await it.tickNow();
  const [partition] = await it.utils.partitions();
  t.deepEqual(keysOf(partition ?? {}), PARTITION);
  t.like(partition, { policy: "p", partition: "k", staged: 1, inFlight: 1, blockedOn: "concurrency" });
  t.true(partition?.createdAt instanceof Date);
  const ofPartition = await it.utils.explain({ policy: "p", partition: "k" });
  const { admitsAMinute, ...same } = partition!; // it fades from one look to the next
  t.like(ofPartition, { ...same, id: second?.id });
  t.true(admitsAMinute! > 0 && ofPartition.admitsAMinute! > 0);

  const staged = await it.utils.explain({ id: second?.id ?? "" });
  const inFlight = await it.utils.explain({ id: first?.id ?? "" });
  const seen = new Set([staged, inFlight].flatMap(keysOf));
  t.deepEqual([...seen].filter((key) => !PARTITION.includes(key)).toSorted(), JOB);

  await it.utils.setLimit({ policy: "p", gate: "concurrency", set: { max: 0 }, reason: "deploy", by: "ana" });
  const [limit] = await it.utils.limits();
  const fields = {
    seen: true,
    hold: true,
    where: true,
    policy: true,
    gate: true,
    key: true,
    override: true,
    from: true,
    since: true,
    until: true,
  } as const;
  t.deepEqual(keysOf(limit ?? {}), fieldsOf<Override>({ ...fields, by: true, reason: true }));
  t.like(limit, { override: { max: 0 }, from: null, until: null, by: "ana", reason: "deploy" });
});

test("a time that never comes is null", async (t) => {
  const utils = await world(t);
  await utils.addJob(greet, { name: "Ana" });
  await utils.pause({ policy: "greet", partition: "Ana" });
  await utils.tick();
  t.like(await utils.explain({ policy: "greet", partition: "Ana" }), {
    ...{ reason: "paused", paused: true, pausedUntil: null, heldUntil: null, eligibleAt: null },
    deniedUntil: null,
  });
});
