import { interval } from "../../db/statements.ts";
import { TICK_TASK } from "../../policy/job.ts";
import { ago, type Check, firstLine } from "./finding.ts";
import { HAS_WAITING } from "./waiting.ts";

/**
 * Work that a pass would have looked at. It is a job that nobody has routed, or a partition whose time has come. Or it is
 * one in line, while no job of its policy is admitted. Arrivals are routed also if their policy is paused.
 */
const nobodyTicks: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ policy: string; shard: string; seconds: number }>(
    `with overdue as (
       select p.name, x.shard, x.since from :DISPATCH_POLICY_INTERNAL.policies p
       cross join lateral (
         select 'default' as shard, min(s.created_at) as since from (
           select a.head_id from :DISPATCH_POLICY_INTERNAL.arrivals a
           where a.policy = p.name order by a.id limit 100) n
         join :DISPATCH_POLICY_INTERNAL.staged_jobs s on s.id = n.head_id
         where not exists (
           select from :DISPATCH_POLICY_INTERNAL.leases e where e.policy = p.name and e.expires_at > clock_timestamp())
         union all
         select h.shard, q.since from unnest(:DISPATCH_POLICY_INTERNAL._shards(p.id)) h (shard)
         cross join lateral (
           (select y.eligible_at as since from :DISPATCH_POLICY_INTERNAL.partitions y
             where y.policy_id = p.id and y.shard = h.shard and y.eligible_at < 'infinity' and not y.ready
             order by y.eligible_at limit 1)
           union all
           (select y.looked_at from :DISPATCH_POLICY_INTERNAL.partitions y
             where y.policy_id = p.id and y.shard = h.shard and y.ready and not exists (
               select from :DISPATCH_POLICY_INTERNAL.in_flight_jobs f
               where f.policy_id = p.id and f.admitted_at > clock_timestamp() - $1::text::interval)
             order by y.looked_at limit 1)) q
         where p.paused_until <= clock_timestamp()
       ) x
       where x.since < clock_timestamp() - $1::text::interval
     )
     select o.name as policy, o.shard, extract(epoch from clock_timestamp() - min(o.since))::float8 as seconds
     from overdue o
     where not exists (
       select from :DISPATCH_POLICY_INTERNAL.leases e
       where e.policy = o.name and e.shard = o.shard and e.expires_at > clock_timestamp())
     group by 1, 2 order by 1, 2 limit 20`,
    [interval(thresholds.untickedMs)],
  );
  return rows.map(({ policy, shard, seconds }) => ({
    id: "nobody-ticks",
    policy,
    severity: "critical",
    sentence: `Nobody ticks policy "${policy}", shard "${shard}": due work has waited for ${ago(seconds)}.`,
    mend: `Start a worker with the preset, or add the crontab line "* * * * * ${TICK_TASK} ?jobKey=${TICK_TASK}".`,
  }));
};

/**
 * No public function or view of Graphile Worker shows its crontab. So the tick itself records that the crontab has started
 * it, and a process must have run for long enough that this would have happened.
 */
const noCrontabTick: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ policy: string; seconds: number | null }>(
    `select p.name as policy, case when p.crontab_ticked_at > '-infinity'
       then extract(epoch from clock_timestamp() - p.crontab_ticked_at)::float8 end as seconds
     from :DISPATCH_POLICY_INTERNAL.policies p
     where p.crontab_ticked_at < clock_timestamp() - $1::text::interval
       and (exists (
           select from :DISPATCH_POLICY_INTERNAL.workers w
           where w.stale_at > clock_timestamp() and not w.ended and w.definitions ? p.name
             and w.started_at < clock_timestamp() - $1::text::interval)
         or (p.declared_at < clock_timestamp() - $1::text::interval and ${HAS_WAITING} and not exists (
           select from :DISPATCH_POLICY_INTERNAL.workers w where w.stale_at > clock_timestamp())))
     order by 1 limit 20`,
    [interval(thresholds.crontabMs)],
  );
  return rows.map(({ policy, seconds }) => ({
    id: "no-crontab-tick",
    policy,
    severity: "warning",
    sentence: `The crontab's tick, the safety net, ${
      seconds === null ? "never came" : `last came ${ago(seconds)} ago`
    } for policy "${policy}".`,
    mend: `* * * * * ${TICK_TASK} ?jobKey=${TICK_TASK}`,
  }));
};

/** The job that the crontab adds has the key which the README names. */
const crontabTickWaits: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ id: string; error: string | null; seconds: number }>(
    `select j.id, j.last_error as error, extract(epoch from clock_timestamp() - j.created_at)::float8 as seconds
     from :GRAPHILE_WORKER_SCHEMA.jobs j
     where j.key = $1::text and j.task_identifier = $1::text and j.locked_at is null
       and (j.last_error is not null or j.run_at < clock_timestamp() - $2::text::interval)`,
    [TICK_TASK, interval(thresholds.untickedMs)],
  );
  return rows.map(({ id, error, seconds }) => ({
    id: "crontab-tick-waits",
    severity: "warning",
    sentence: `The crontab's tick (job ${id}) ${
      error === null ? `has waited for a worker for ${ago(seconds)}.` : `fails: ${firstLine(error)}`
    }`,
    mend: "Start a worker that has its task: one with the preset, or see docs/production.md#the-tick-in-a-task-folder.",
  }));
};

/** Those that find what is about one policy. */
export const ticksOfPolicies: readonly Check[] = [nobodyTicks, noCrontabTick];
export const tickChecks: readonly Check[] = [...ticksOfPolicies, crontabTickWaits];
