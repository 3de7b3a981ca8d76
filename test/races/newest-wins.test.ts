// `whenRunning: "cancel"`, as fast as it goes: producers, two workers, runs that heed their signals late, ignore them or fail.
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import type { JobHelpers } from "graphile-worker";
import type pg from "pg";
import { addPolicyJob, concurrency, definePolicy } from "../../src/index.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { type Random, random, seedOf } from "../helpers/random.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker } from "../helpers/worker.ts";

const PRODUCERS = 4;
const ADDS = 60;

type Payload = { readonly key: string; readonly n: number };

const policy = definePolicy("work", {
  partitionBy: "key",
  gates: [concurrency({ max: 3 })],
  backoff: () => "10 milliseconds",
  whenRunning: "cancel",
});

const NAMES = {
  staged:
    "no two runs of a key overlap, none is older than one that has succeeded, and the last job of each runs",
  native: "nor is the last job lost if some come past the policy, which may run beside others",
};

for (const [mix, name] of Object.entries(NAMES))
  test(name, async (t) => {
    t.timeout(240_000);
    const natives = mix === "native";
    const chance = random(seedOf(t));
    const database = await lentDatabase(t);
    const running = new Map<string, number>();
    const done = new Map<string, number[]>();
    const counts = { runs: 0, cancelled: 0, overlaps: 0, backwards: 0 };
    const task = async (payload: unknown, { abortSignal }: JobHelpers) => {
      const { key, n } = payload as Payload;
      counts.runs++;
      if (running.has(key)) counts.overlaps++;
      if (done.get(key)?.some((other) => other > n)) counts.backwards++;
      running.set(key, n);
      try {
        const how = chance.unit();
        await sleep(chance.between(0, 100), undefined, how < 0.7 ? { signal: abortSignal } : {});
        if (how > 0.9) throw new Error("by chance");
        done.set(key, [...(done.get(key) ?? []), n]);
      } catch (error) {
        if (abortSignal.aborted) counts.cancelled++;
        await sleep(chance.between(0, 5)); // it takes a moment to end
        throw error;
      } finally {
        running.delete(key);
      }
    };
    const options = {
      ...{ policies: [policy], tasks: { work: task }, database },
      preset: { ...NO_HEARTBEAT, workerHeartbeatInterval: "3 seconds" }, // no sweep comes
      worker: { concurrentJobs: 4, pollInterval: 500 },
    } as const;
    await startWorker(t, options);
    await startWorker(t, options);
    const last = new Map<string, number>();
    await Promise.all(
      Array.from({ length: PRODUCERS }, (_, producer) =>
        produce(
          database.pool,
          [`${producer}a`, `${producer}b`],
          last,
          random(chance.below(2 ** 31)),
          natives,
        ),
      ),
    );
    await until(
      "the last job of each key has ended, and nothing is left",
      async () => {
        const { rows } = await database.pool.query(
          "select (select count(*) from dispatch_policy.staged_jobs) + (select count(*) from dispatch_policy.in_flight_jobs) as left",
        );
        return Number(rows[0].left) === 0 && [...last].every(([key, n]) => done.get(key)?.includes(n));
      },
      { withinMs: 120_000 },
    );
    t.log(counts);
    if (!natives) t.like(counts, { overlaps: 0, backwards: 0 });
    const open = (await workerTable(database.pool).all()).filter(
      ({ attempts, max_attempts }) => attempts < max_attempts,
    );
    t.deepEqual(open, []);
  });

/** Adds jobs of its own keys, one after the other, so that it knows which is the last one. */
async function produce(
  pool: pg.Pool,
  keys: readonly string[],
  last: Map<string, number>,
  chance: Random,
  natives: boolean,
): Promise<void> {
  const client = await pool.connect();
  try {
    for (let n = 1; n <= ADDS; n++) {
      const inOne = chance.chance(0.3) ? keys : [chance.pick(keys)];
      const stays = chance.chance(0.9);
      await client.query("begin");
      const added: string[] = [];
      for (const key of inOne)
        if (await add(client, { key, n }, chance.unit() * (natives ? 1 : 0.75))) added.push(key);
      if (chance.chance(0.3)) await sleep(chance.between(0, 10));
      await client.query(stays ? "commit" : "rollback");
      if (stays) for (const key of added) last.set(key, n);
      await sleep(chance.between(0, 50));
    }
  } finally {
    client.release();
  }
}

/**
 * By JavaScript, by SQL, or past the policy, which `how` says. False: Graphile Worker has added nothing, because a worker fetched
 * the job of the key at that moment.
 */
async function add(client: pg.PoolClient, payload: Payload, how: number): Promise<boolean> {
  const jobKey = payload.key;
  if (how < 0.5) return (await addPolicyJob(client, policy, payload as never, { jobKey })).staged;
  const schema = how < 0.75 ? "dispatch_policy" : "graphile_worker";
  const text = `select id from ${schema}.add_job('work', $1, job_key => $2)`;
  return (await client.query(text, [payload, jobKey])).rows[0]?.id != null;
}
