// A server that says 429 for a while: it is asked once per cooldown and key, and no attempt is lost.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import test, { type ExecutionContext } from "ava";
import { definePolicy, RetryAfter } from "../../src/index.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const AT_ONCE = 4;
const JOBS = 12;
const REFUSED_PROBES = 3;

/** Refuses key "a" until it has been asked so often by one probe at a time. */
async function refusingServer(t: ExecutionContext) {
  const answers: { key: string; status: number; at: number }[] = [];
  const server = http.createServer((request, response) => {
    const key = request.url!.slice(1);
    const refused = answers.filter(({ status }) => status === 429).length;
    const status = key === "a" && refused < AT_ONCE + REFUSED_PROBES ? 429 : 200;
    answers.push({ key, status, at: performance.now() });
    response.writeHead(status).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, answers };
}

const call = definePolicy("call", {
  partitionBy: "key",
  gates: ({ concurrency }) => [concurrency({ max: AT_ONCE })],
  job: { maxAttempts: 1 },
  giveBackAttempt: true,
});

test("one call per cooldown and key while it refuses, other keys at full rate, then all at once", async (t) => {
  const { url, answers } = await refusingServer(t);
  const attempts: number[] = [];
  const worker = await startWorker(t, {
    policies: [call],
    worker: { concurrentJobs: 10 },
    tasks: {
      call: async (payload, { job }) => {
        attempts.push(job.attempts);
        const response = await fetch(`${url}/${(payload as { key: string }).key}`);
        if (response.status === 429) throw new RetryAfter("1 second");
      },
    },
  });
  await worker.utils.addJobs(
    ["a", "b"].flatMap((key) =>
      Array.from({ length: JOBS }, () => ({ identifier: "call", payload: { key } })),
    ),
  );
  await worker.sees("job:success", 2 * JOBS);

  const refused = answers.filter(({ status }) => status === 429);
  // those that were in flight together when the first was refused, then one at a time
  const probes = refused.slice(-REFUSED_PROBES);
  for (const [n, probe] of probes.entries()) {
    const before = refused[refused.length - REFUSED_PROBES + n - 1]!;
    t.true(probe.at - before.at >= 900, `asked again after ${Math.round(probe.at - before.at)} ms`);
  }
  const firstServed = answers.findIndex(({ key, status }) => key === "a" && status === 200);
  t.is(answers.filter(({ key }, n) => key === "b" && n < firstServed).length, JOBS, "b was served meanwhile");
  const served = answers.filter(({ key, status }) => key === "a" && status === 200);
  t.log(
    `${AT_ONCE} at once ${Math.round(served[AT_ONCE]!.at - served[0]!.at)} ms after the first was served`,
  );
  t.deepEqual([...new Set(attempts)], [1], "no attempt was lost");
  t.deepEqual(
    worker.happened.filter(({ event }) => event === "job:failed").length,
    refused.length,
    "as Graphile Worker sees it",
  );
  await worker.everythingIsReleased();
});

test("a job removed while it ran is not brought back by the attempt it gives back", async (t) => {
  let ends = () => {};
  const ended = new Promise<void>((resolve) => {
    ends = resolve;
  });
  let runs = 0;
  const worker = await startWorker(t, {
    policies: [call],
    tasks: {
      call: async () => {
        runs += 1;
        await ended;
        throw new RetryAfter("0 seconds");
      },
    },
  });
  await worker.utils.addJob("call", { key: "a" } as never, { jobKey: "x", maxAttempts: 3 });
  await until("it runs", () => runs === 1);
  await worker.pool.query("select dispatch_policy.remove_job('x')");
  ends();
  await worker.everythingIsReleased();
  t.is((await worker.pool.query("select from dispatch_policy.staged_jobs")).rows.length, 0);
  t.is(runs, 1);
});
