// A partner that answers 429 for a while: it is asked once per cooldown and key, and no attempt is lost.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import test, { type ExecutionContext } from "ava";
import { definePolicy, RetryAfter } from "../../src/index.ts";
import { FULL } from "../helpers/scenario.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const RATE = 10;
const JOBS = 40;
const REFUSES_MS = 20_000;
const COOLDOWN_MS = 1000;
/** From the partner's recovery until its key has its full rate again. */
const RECOVERED_WITHIN_MS = FULL ? 2000 : 5000;
/** The partner's clock and the database's may run apart a little. */
const CLOCKS_APART_MS = 20;
const REFUSED = ["a", "b"];
const SERVED = "c";

interface Call {
  readonly key: string;
  readonly refused: boolean;
  /** When the job was admitted, by the database's clock. */
  readonly admittedAt: number;
  /** When the call arrived. */
  readonly at: number;
}

/** Refuses some keys for a time that begins with the first call. */
async function partner(t: ExecutionContext) {
  const calls: Call[] = [];
  const server = http.createServer((request, response) => {
    const [, key = "", admittedAt] = request.url!.split("/");
    const at = Date.now();
    const refused = REFUSED.includes(key) && at - (calls[0]?.at ?? at) < REFUSES_MS;
    calls.push({ key, refused, admittedAt: Number(admittedAt), at });
    response.writeHead(refused ? 429 : 200).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, calls };
}

const call = definePolicy("call", {
  partitionBy: "key",
  gates: ({ throttle }) => [throttle({ rate: RATE, per: "1 second" })],
  job: { maxAttempts: 1 },
  refundAttempt: true,
});

test("a time that has passed is no hold, but one job goes first, and nothing is warned about", async (t) => {
  const started: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const worker = await startWorker(t, {
    policies: [call],
    tasks: {
      call: (payload) =>
        new Promise<void>((resolve, reject) => {
          const { n } = payload as { n: string };
          started.push(n);
          ends.set(n, (error) => (error ? reject(error) : resolve()));
        }),
    },
  });
  const add = (n: string) => worker.utils.addJob("call", { key: "a", n });
  await add("first");
  await until("it runs", () => ends.has("first"));
  ends.get("first")?.(new RetryAfter(new Date(0)));
  await until("it is probed", async () => {
    const { probing } = await worker.row("select probing from dispatch_policy.partitions");
    return probing;
  });
  await worker.sees("job:error");
  t.deepEqual(
    worker.log.filter(({ level }) => level === "warning").map(({ message }) => message),
    [],
  );
  await until("the probe runs", () => started.length === 2);
  ends.get("first")?.();
  await worker.sees("job:success");
});

test("scenario 34: a partner answers 429 for 20 s, then the full rate is back", async (t) => {
  const { url, calls } = await partner(t);
  const attempts: number[] = [];
  const task = call.task(async (payload, { job, dispatchPolicy: { admittedAt } }) => {
    attempts.push(job.attempts);
    const { key } = payload as { key: string };
    const { status } = await fetch(`${url}/${key}/${admittedAt!.getTime()}`);
    if (status === 429) throw new RetryAfter(`${COOLDOWN_MS} ms`);
  });
  const worker = await startWorker(t, {
    policies: [call],
    worker: { concurrentJobs: 40 },
    tasks: { call: task },
  });
  const keys = [...REFUSED, SERVED];
  await worker.utils.addJobs(
    keys.flatMap((key) => Array(JOBS).fill({ identifier: "call", payload: { key } })),
  );
  await worker.sees("job:success", keys.length * JOBS);
  for (const key of REFUSED) {
    const mine = calls.filter((one) => one.key === key);
    isAskedOncePerCooldown(t, mine, await holdsOf(worker, key));
    isBackAtFullRate(t, mine, calls[0]!.at + REFUSES_MS);
  }
  const firstServed = calls.findIndex(({ key, refused }) => key !== SERVED && !refused);
  const others = calls.slice(0, firstServed).filter(({ key }) => key === SERVED);
  t.is(others.length, JOBS, "a key that is not refused was served meanwhile");
  t.deepEqual([...new Set(attempts)], [1], "no attempt was lost");
  t.is(
    worker.happened.filter(({ event }) => event === "job:failed").length,
    calls.filter(({ refused }) => refused).length,
    "as Graphile Worker sees it",
  );
  await worker.everythingIsReleased();
});

/** When each refusal held the key, and for how long, in milliseconds by the database's clock. */
async function holdsOf(worker: TestWorker, key: string): Promise<readonly { at: number; forMs: number }[]> {
  const text = `select at, (detail ->> 'until')::timestamptz as until from dispatch_policy.audit
    where verb = 'hold' and partition = $1 order by id`;
  const { rows } = await worker.pool.query(text, [key]);
  return rows.map(({ at, until }) => ({ at: at.getTime(), forMs: until - at }));
}

/** Those that were in flight together when the first was refused, then one at a time. */
function isAskedOncePerCooldown(
  t: ExecutionContext,
  calls: readonly Call[],
  holds: Awaited<ReturnType<typeof holdsOf>>,
): void {
  const refused = calls.filter((one) => one.refused);
  t.is(holds.length, refused.length);
  t.true(
    holds.every(({ forMs }) => forMs <= COOLDOWN_MS),
    "none for longer than a cooldown",
  );
  const probes = refused.filter(({ admittedAt }) => admittedAt > holds[0]!.at);
  t.true(probes.length > 1 && probes.length <= REFUSES_MS / COOLDOWN_MS, `${probes.length} probes`);
  for (const [n, probe] of probes.slice(1).entries()) {
    const gap = probe.at - probes[n]!.at;
    t.true(gap >= COOLDOWN_MS - CLOCKS_APART_MS, `asked again after ${gap} ms`);
  }
}

/**
 * After one success the next pass uses the whole bucket, and each later pass the tokens that have come since. How often
 * there is a pass depends on the machine: so only the full size asserts the pace.
 */
function isBackAtFullRate(t: ExecutionContext, calls: readonly Call[], recoveredAt: number): void {
  const [probe, ...others] = calls
    .filter(({ refused }) => !refused)
    .toSorted((one, other) => one.admittedAt - other.admittedAt);
  const passes = [...Map.groupBy(others, ({ admittedAt }) => admittedAt)];
  // A pass reads the time after its transaction has begun, and before its first call arrives. It skips jobs whose rows a
  // worker has locked at that moment: a later one takes them.
  let [tokens, at, left, skipping] = [RATE - 1, probe!.at, others.length, 0];
  for (const [admittedAt, ofPass] of passes) {
    const admitted = ofPass.length;
    tokens = Math.min(RATE, tokens + (Math.max(0, admittedAt - at - CLOCKS_APART_MS) * RATE) / 1000);
    skipping = admitted >= Math.min(Math.floor(tokens), left) ? 0 : skipping + 1;
    t.true(skipping < 3, `${admitted} of ${tokens} tokens`);
    tokens = Math.max(0, tokens - admitted);
    at = Math.min(...ofPass.map((one) => one.at));
    left -= admitted;
  }
  const [first] = passes[0]!;
  const atFirst = passes.slice(0, 3).reduce((sum, [, { length }]) => sum + length, 0);
  // the whole bucket but for the probe's token, not one job as while it probes
  t.true(atFirst >= RATE - 1, `${atFirst} in the first three passes`);
  t.log(
    `the bucket was used ${first - probe!.admittedAt} ms after the probe, ${first - recoveredAt} ms after the recovery`,
  );
  t.true(first - recoveredAt <= RECOVERED_WITHIN_MS);
  if (FULL) {
    const inASecond = others.filter(
      ({ admittedAt }) => admittedAt > first && admittedAt <= first + 1000,
    ).length;
    t.true(inASecond >= RATE - 1, `${inASecond} in the second after`);
  }
}

test("a job removed while it ran is not brought back by the attempt it frees", async (t) => {
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
