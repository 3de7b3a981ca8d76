// What happened to a job, for those who ask afterwards: in TypeScript, in SQL and on the command line.
import test from "ava";
import {
  ArgumentError,
  concurrency,
  definePolicy,
  type JobHistory,
  UnknownPolicyError,
} from "../../src/index.ts";
import { rowsOf, runCommand } from "../helpers/command.ts";
import { startWorker } from "../helpers/worker.ts";

const options = { partitionBy: "k", gates: [concurrency({ max: 1 })] } as const;
const kept = definePolicy("kept", { ...options, history: { keep: "7 days" }, backoff: () => false });
const native = definePolicy("native", { ...options, history: { keep: "7 days" } });
const forgotten = definePolicy("forgotten", options);

const fails = () => {
  throw new Error("503 from the server\nmore");
};

async function world(t: Parameters<typeof startWorker>[0]) {
  const worker = await startWorker(t, {
    policies: [kept, native, forgotten],
    tasks: {
      kept: (payload) => ((payload as { bad?: boolean }).bad ? fails() : undefined),
      native: fails,
      forgotten: () => {},
    },
  });
  const byPartition = async () =>
    new Map((await worker.utils.history()).map((one) => [one.partition, one] as const));
  const cli = (...args: string[]) => runCommand(worker.database.url, ...args);
  return { ...worker, byPartition, cli };
}

function isInOrder({ addedAt, admittedAt, lastAdmittedAt, startedAt, endedAt }: JobHistory): boolean {
  const times = [addedAt, admittedAt, lastAdmittedAt, startedAt, endedAt].map(
    (at) => at?.getTime() ?? Number.NaN,
  );
  return times.every((at, place) => place === 0 || at >= (times[place - 1] as number));
}

test("a worker's jobs have their times, their outcome, and the first line of their error", async (t) => {
  const { utils, sees, everythingIsReleased, byPartition } = await world(t);
  await utils.addJob("kept", { k: "good" }, { jobKey: "its" });
  await utils.addJob("kept", { k: "bad", bad: true });
  await utils.addJob("native", { k: "last" }, { maxAttempts: 1 });
  await utils.addJob("forgotten", { k: "forgotten" });
  await sees("job:success", 2);
  await sees("job:error", 2);
  await everythingIsReleased();
  const found = await byPartition();
  t.deepEqual([...found.keys()].toSorted(), ["bad", "good", "last"]);
  for (const one of found.values()) t.true(isInOrder(one), JSON.stringify(one));
  const common = { attempts: 1, waited: found.get("good")!.waited };
  t.like(found.get("good"), { ...common, outcome: "succeeded", error: null, jobKey: "its", policy: "kept" });
  const failed = { outcome: "failed", error: "503 from the server", attempts: 1 } as const;
  t.like(found.get("bad"), failed, "its back-off gave it up");
  t.like(found.get("last"), failed, "it had one attempt");
});

test("explain answers for jobs that have ended, and says for how long they waited", async (t) => {
  const { utils, sees, everythingIsReleased, cli } = await world(t);
  const { id } = await utils.addJob("kept", { k: "a" });
  const other = await utils.addJob("forgotten", { k: "a" });
  await sees("job:success", 2);
  await everythingIsReleased();
  const it = await utils.explain({ id });
  t.like(it, { state: "ended", policy: "kept", partition: "a", attempts: 1, reason: null });
  t.like(it.history, { id, outcome: "succeeded" });
  t.true(it.history!.endedAt instanceof Date);
  t.regex(it.sentence, /^It succeeded at 20\d\d-.*, after 1 attempt\. It waited \d+ m?s: in line \d+ m?s\.$/);
  t.is((await utils.explain({ id: it.history!.jobId! })).history!.id, id, "also by Graphile Worker's id");
  t.is((await utils.explain({ id: other.id })).state, "unknown");
  const { stdout, code } = await cli("explain", id);
  t.is(code, 0);
  t.regex(stdout, /^kept\/a \d+ {2}ended\nIt succeeded at /);
  t.regex(
    stdout.replace(/\s+/g, " "),
    / added 20[^,]+, due 20[^,]+, admitted 20[^,]+, started 20[^,]+, ended 20/,
  );
});

test("the list is filtered by policy, partition, outcome and time, the last to end first", async (t) => {
  const { utils, sees, everythingIsReleased, cli } = await world(t);
  await utils.addJob("kept", { k: "a" });
  await sees("job:success");
  await utils.addJob("kept", { k: "b", bad: true });
  await sees("job:error");
  await everythingIsReleased();
  const keys = async (query: Parameters<typeof utils.history>[0]) =>
    (await utils.history(query)).map(({ partition }) => partition);
  t.deepEqual(await keys({}), ["b", "a"]);
  t.deepEqual(await keys({ limit: 1 }), ["b"]);
  t.deepEqual(await keys({ policy: "native" }), []);
  t.deepEqual(await keys({ partition: "a" }), ["a"]);
  t.deepEqual(await keys({ outcome: "failed" }), ["b"]);
  t.deepEqual(await keys({ since: new Date(Date.now() + 60_000) }), []);
  t.deepEqual(await keys({ since: new Date(Date.now() - 60_000) }), ["b", "a"]);
  await t.throwsAsync(utils.history({ policy: "nobody" }), { instanceOf: UnknownPolicyError });
  await t.throwsAsync(utils.history({ outcome: "ok" as never }), {
    instanceOf: ArgumentError,
    message: /history: outcome must be "succeeded", .*got "ok"/,
  });
  const listed = await cli("history", "--policy", "kept", "--outcome", "failed", "--since", "1 hour");
  t.is(listed.code, 0);
  t.regex(
    listed.stdout,
    /^ENDED +OUTCOME +ID +PARTITION +WAITED +ERROR\n\d\d-\d\d \S+ +failed +\d+ +b +\d+ m?s: .* 503 f/,
  );
  t.false(listed.stdout.split("\n").some((line) => line.length > 80));
  const [row] = rowsOf((await cli("history", "--partition", "a", "--json")).stdout);
  t.like(row, { partition: "a", outcome: "succeeded", attempts: 1 });
  t.is(typeof row.waited.in_line, "number");
  t.like(await cli("history", "--outcome", "ok"), { code: 2 });
});
