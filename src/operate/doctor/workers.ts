import { counted } from "../../counted.ts";
import { interval } from "../../db/statements.ts";
import { argument, COMMAND } from "../quoted.ts";
import type { PolicyStatus } from "../status.ts";
import { ago, type Check, type Finding } from "./finding.ts";
import { HAS_WAITING, IN_FLIGHT, LIVE, RUNS_ELSEWHERE } from "./waiting.ts";

/** Its jobs are admitted, and then wait in Graphile Worker. */
const noWorker: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; task: string; in_flight: number }>(
    `with ${LIVE}
     select p.name as policy, t.task_identifier as task, ${IN_FLIGHT} as in_flight
     from :DISPATCH_POLICY_INTERNAL.policies p
     join :DISPATCH_POLICY_INTERNAL.policy_tasks t on t.policy_id = p.id
     where not exists (select from live w where t.task_identifier = any(w.tasks))
       and case when exists (select from live)
         then exists (select from live w where w.definitions ? p.name) else not ${RUNS_ELSEWHERE} end
       and (${IN_FLIGHT} > 0 or ${HAS_WAITING})
     order by 1, 2 limit 20`,
  );
  return rows.map(({ policy, task, in_flight }) => ({
    id: "no-worker",
    policy,
    severity: "critical",
    sentence: `No live worker has the task "${task}" of policy "${policy}", for which jobs wait (${in_flight} in flight).`,
    mend: `Start the worker that has it, or register the task: run({ preset, taskList: { ${JSON.stringify(task)}: task } })`,
  }));
};

/** Hardly anybody admits its jobs, or frees their slots: it was renamed or removed in the code. */
const orphaned: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; jobs: number; declared: boolean }>(
    `with ${LIVE}
     select p.name as policy, ${IN_FLIGHT} as jobs, true as declared
     from :DISPATCH_POLICY_INTERNAL.policies p
     where exists (select from live) and not exists (select from live w where w.definitions ? p.name)
       and not ${RUNS_ELSEWHERE} and (${IN_FLIGHT} > 0 or ${HAS_WAITING})
     union all
     select u.policy, u.staged, false from :DISPATCH_POLICY_SCHEMA.undeclared_policies u
     where not exists (select from live w where w.definitions ? u.policy)
     order by 1 limit 20`,
  );
  return rows.map(({ policy, jobs, declared }) => ({
    id: "orphaned",
    policy,
    severity: "critical",
    sentence: `Jobs wait for policy "${policy}", which ${
      declared ? `no live worker has (${jobs} in flight)` : `nobody declared (${jobs} staged)`
    }.`,
    mend: [
      "# start a worker that has it",
      `# renamed: ${COMMAND} remove-policy --policy ${argument(policy)} --into NAME`,
      `# removed: ${declared ? "switch it off, then " : ""}${COMMAND} unstage --policy ${argument(policy)}`,
    ].join("\n"),
  }));
};

/**
 * Those that Graphile Worker should give to a worker that has room. Its rows are looked at only if a job waits for so long:
 * PostgreSQL has no index by who locked a row.
 */
const notFetched: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ policy: string; task: string; jobs: number; seconds: number }>(
    `with ${LIVE},
     waiting as materialized (
       select p.name as policy, j.task_identifier as task, count(*)::int as jobs,
         extract(epoch from clock_timestamp() - min(greatest(j.run_at, f.admitted_at)))::float8 as seconds
       from :DISPATCH_POLICY_INTERNAL.policies p
       join :DISPATCH_POLICY_INTERNAL.in_flight_jobs f on f.policy_id = p.id
       cross join lateral (
         select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
       where f.admitted_at < clock_timestamp() - $1::text::interval
         and j.run_at < clock_timestamp() - $1::text::interval
         and j.locked_at is null and j.attempts < j.max_attempts
         and (j.queue_name is null or not exists (
           select from :GRAPHILE_WORKER_SCHEMA.jobs x where x.queue_name = j.queue_name and x.locked_at is not null))
       group by 1, 2
     )
     select k.* from waiting k
     where exists (
       select from live w where k.task = any(w.tasks) and w.slots > (
         select count(*) from :GRAPHILE_WORKER_SCHEMA.jobs x where x.locked_by = w.pool_id))
     order by 1, 2 limit 20`,
    [interval(thresholds.unfetchedMs)],
  );
  return rows.map(({ policy, task, jobs, seconds }) => ({
    id: "not-fetched",
    policy,
    severity: "critical",
    sentence:
      `No worker fetches ${counted(jobs, "admitted job")} of task "${task}" of policy "${policy}", the first for ${ago(seconds)}, ` +
      "though workers that have the task have room.",
    mend: "Restart these workers, so that they ask for the task's id again. Or let one of them take the jobs' flags: forbiddenFlags.",
  }));
};

/** Their jobs free no slots: looks do, a moment late. */
const noPreset: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ policy: string; jobs: number; seconds: number }>(
    `select p.name as policy, p.ended_elsewhere as jobs,
       extract(epoch from clock_timestamp() - p.ended_elsewhere_at)::float8 as seconds
     from :DISPATCH_POLICY_INTERNAL.policies p
     where p.ended_elsewhere_at > clock_timestamp() - $1::text::interval order by 1 limit 20`,
    [interval(thresholds.noPresetMs)],
  );
  return rows.map(({ policy, jobs, seconds }) => ({
    id: "no-preset",
    policy,
    severity: "warning",
    sentence: `Workers without the preset run jobs of policy "${policy}": ${jobs} ended there, the last ${ago(seconds)} ago.`,
    mend: "Add it to every worker: extends: [WorkerPreset, dispatchPolicyPreset({ policies })]. Or stop those workers.",
  }));
};

/** Its jobs stay locked until a sweep unlocks them. */
const silentWorker: Check = async ({ ask }) => {
  const rows = await ask<{ host: string; pid: number; seconds: number }>(
    `select w.host, w.pid, extract(epoch from clock_timestamp() - w.heartbeat_at)::float8 as seconds
     from :DISPATCH_POLICY_INTERNAL.workers w
     where w.stale_at < clock_timestamp() and w.buried_at is null and not w.ended order by w.heartbeat_at limit 20`,
  );
  return rows.map(({ host, pid, seconds }) => ({
    id: "silent-worker",
    severity: "warning",
    sentence: `The worker of process ${pid} on ${host} has been silent for ${ago(seconds)}, and no sweep has unlocked its jobs.`,
    mend: `Start a worker with the preset: its sweep unlocks them. If process ${pid} on ${host} hangs, kill it.`,
  }));
};

/** Of one version that of the worker which started last is in force, and jobs bring the limits of the process that adds them. */
const twoDefinitions: Check = async ({ ask }) => {
  const rows = await ask<{ policy: string; version: string; definitions: number }>(
    `with ${LIVE}
     select d.key as policy, d.value ->> 'version' as version, count(distinct d.value ->> 'hash')::int as definitions
     from live w cross join jsonb_each(w.definitions) d
     group by 1, 2 having count(distinct d.value ->> 'hash') > 1 order by 1 limit 20`,
  );
  return rows.map(({ policy, version, definitions }) => ({
    id: "two-definitions",
    policy,
    severity: "warning",
    sentence: `Live workers have ${definitions} definitions of policy "${policy}" with version ${version}.`,
    mend: `definePolicy(${JSON.stringify(policy)}, { ..., version: ${Number(version) + 1} }) // in the newer code`,
  }));
};

/** A deployment was rolled back or is under way: jobs go by what live workers have, not by the newest that was declared. */
const olderDefinition: Check = async ({ ask }) => {
  const rows = await ask<{
    policy: string;
    version: number;
    newest: number;
    host: string | null;
    pid: number | null;
    because: PolicyStatus["inForceBecause"];
  }>(
    `select p.policy, p.version, p.newest_version as newest, p.in_force_because as because, d.host, d.pid
     from :DISPATCH_POLICY_SCHEMA.policies p
     cross join lateral (
       select x.host, x.pid from :DISPATCH_POLICY_SCHEMA.definitions x
       where x.policy = p.policy and x.version = p.newest_version order by x.declared_at desc limit 1) d
     where p.in_force_because in ('workers', 'no_sweep') order by 1 limit 20`,
  );
  return rows.map(
    ({ policy, version, newest, host, pid, because }): Finding =>
      because === "workers"
        ? {
            id: "older-definition",
            policy,
            severity: "info",
            sentence:
              `Jobs of policy "${policy}" go by version ${version}, the newest that a live worker has. ` +
              `Version ${newest} was declared by process ${pid ?? "?"} on ${host ?? "?"}, and no live worker has it.`,
            mend: `# rolled back: nothing
# rolled out: start a worker that has version ${newest}`,
          }
        : {
            id: "older-definition",
            policy,
            severity: "warning",
            sentence: `Jobs of policy "${policy}" go by version ${version}, which no live worker has.`,
            mend: "await utils.sweep(); // a live worker's leader does it by itself, every sweepInterval",
          },
  );
};

/** Those that find what is about one policy. */
export const workersOfPolicies: readonly Check[] = [
  noWorker,
  orphaned,
  notFetched,
  noPreset,
  twoDefinitions,
  olderDefinition,
];
export const workerChecks: readonly Check[] = [...workersOfPolicies, silentWorker];
