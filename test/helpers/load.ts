// A load of some minutes, run through the engine of a server in seconds: each step has its time, as a tick would.
import type { PolicyUtils } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import type { Random } from "./random.ts";

export interface LoadJob {
  readonly partition: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** How long it runs. */
  readonly runMs: number;
}

export interface RealJob extends LoadJob {
  admittedAt: number | null;
}

/** Jobs that come in the last so many seconds, at random: how many of each partition. They leave the last three alone. */
export function jobsOf(
  random: Random,
  seconds: number,
  counts: Readonly<Record<string, number>>,
  runMs = () => 1,
): LoadJob[] {
  const from = Date.now() - seconds * 1000;
  return Object.entries(counts).flatMap(([partition, count]) =>
    Array.from({ length: count }, () => {
      return { partition, at: from + random.below((seconds - 3) * 1000), runMs: runMs() };
    }),
  );
}

/** Adds the jobs, and ticks from event to event until it has caught up with the clock. Says when each was admitted. */
export async function runLoad(
  { pool, utils }: { pool: TestDatabase["pool"]; utils: PolicyUtils },
  policy: string,
  jobs: readonly LoadJob[],
): Promise<readonly RealJob[]> {
  const ran: RealJob[] = jobs.map((job) => ({ ...job, admittedAt: null })).sort((a, b) => a.at - b.at);
  const byId = new Map<string, RealJob>();
  const ends: { at: number; id: string; job: RealJob }[] = [];
  let next = 0;
  let now = ran[0]!.at;
  let last = "0";
  for (let until = Date.now(); until - now > 500; until = Date.now()) {
    const due: RealJob[] = [];
    while (ran[next] && ran[next]!.at <= now) due.push(ran[next++]!);
    if (due.length > 0) {
      const specs = due.map(({ partition, at }) => ({
        identifier: policy,
        payload: { to: partition },
        runAt: new Date(at),
      }));
      const added = await utils.addJobs(specs);
      for (const [n, { id }] of added.entries()) byId.set(String(id), due[n]!);
    }
    const over = ends.filter(({ at }) => at <= now);
    if (over.length > 0) {
      const done = over.map(({ id, job }) => ({ job: id, ok: true, lagMs: 1, durationMs: job.runMs }));
      await pool.query("select dispatch_policy_internal._release($1, $2)", [
        JSON.stringify(done),
        new Date(now),
      ]);
      for (const end of over) ends.splice(ends.indexOf(end), 1);
    }
    const { admitted, nextEligibleAt } = await utils.tick({ policy, now: new Date(now) });
    if (admitted > 0) {
      const { rows } = await pool.query(
        "select job_id, staged_id from dispatch_policy_internal.in_flight_jobs where job_id > $1 order by job_id",
        [last],
      );
      for (const { job_id, staged_id } of rows) {
        const job = byId.get(String(staged_id))!;
        job.admittedAt = now;
        ends.push({ at: now + job.runMs, id: String(job_id), job });
        last = String(job_id);
      }
    }
    const eligible = nextEligibleAt
      ? Math.max(nextEligibleAt.getTime(), now + (admitted > 0 ? 0 : 1))
      : until;
    now = Math.min(ran[next]?.at ?? until, eligible, ...ends.map(({ at }) => at), until);
  }
  return ran;
}

/** What happened to a partition's jobs. */
export function happened(ran: readonly RealJob[], partition: string, until: number) {
  const jobs = ran.filter((job) => job.partition === partition && job.at < until);
  const started = jobs.filter(({ admittedAt }) => admittedAt !== null).length;
  const waits = jobs.map(({ at, admittedAt }) => ((admittedAt ?? until) - at) / 1000).sort((a, b) => a - b);
  const quantile = (share: number) => waits[Math.max(0, Math.ceil(share * waits.length) - 1)] ?? 0;
  return {
    came: jobs.length,
    started,
    waiting: jobs.length - started,
    p50: quantile(0.5),
    p95: quantile(0.95),
    longest: quantile(1),
  };
}
