import { interval } from "../../db/statements.ts";
import { ago, type Check } from "./finding.ts";

/** What the promotion has lost is gone, and workers have said what they run. */
const promoted: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ timeline: string; seconds: number; silent: number }>(
    `select (select s.last_value::text from :DISPATCH_POLICY_INTERNAL.timeline s) as timeline,
       extract(epoch from clock_timestamp())::float8 - p.last_value / 1000.0::float8 as seconds,
       (select count(*)::int from :DISPATCH_POLICY_INTERNAL.workers w
        where w.stale_at > clock_timestamp() and not w.ended
          and w.server is distinct from :DISPATCH_POLICY_INTERNAL._server_now()) as silent
     from :DISPATCH_POLICY_INTERNAL.promoted_at p
     where p.last_value > extract(epoch from clock_timestamp() - $1::text::interval) * 1000`,
    [interval(thresholds.promotedMs)],
  );
  return rows.map(({ timeline, seconds, silent }) => ({
    id: "promoted",
    severity: silent > 0 ? "warning" : "info",
    sentence:
      `Another server was promoted ${ago(seconds)} ago, to timeline ${timeline}. Live workers that have not said yet ` +
      `what they run: ${silent}.`,
    mend: "# With asynchronous replication the last jobs may be lost, or run again: docs/failover.md says which",
  }));
};

/** A promotion moves the sequences of ids on: see `_meet_server`. */
const fixedIds: Check = async ({ ask }) => {
  const rows = await ask<{ owner: string; sequence: string }>(
    `select quote_ident(p.proowner::regrole::text) as owner, s.name as sequence
     from pg_proc p
     cross join pg_get_serial_sequence(quote_ident(:'GRAPHILE_WORKER_SCHEMA') || '._private_jobs', 'id') s (name)
     where p.oid = ':DISPATCH_POLICY_INTERNAL._meet_server()'::regprocedure
       and not has_sequence_privilege(p.proowner, s.name, 'update')`,
  );
  return rows.map(({ owner, sequence }) => ({
    id: "fixed-ids",
    severity: "warning",
    sentence:
      `${owner}, who owns this package's schema, may not set ${sequence}: after a failover ids of jobs come again, and the ` +
      "late end of a lost job may complete another one.",
    mend: `grant update on sequence ${sequence} to ${owner};`,
  }));
};

/** A crash or a failover forgets that a job was fetched, or has ended. */
const commitsEarly: Check = async ({ ask }) => {
  const rows = await ask<{ name: string }>(
    "select s.name from pg_settings s where s.name = 'synchronous_commit' and s.setting = 'off'",
  );
  return rows.map(({ name }) => ({
    id: "commits-early",
    severity: "warning",
    sentence:
      `${name} is off, so a crash of the server forgets the last commits: jobs that were added are lost, and jobs that were ` +
      "fetched or have ended run again.",
    mend: `alter system reset ${name};\nselect pg_reload_conf(); -- if it stays: alter role, or alter database, reset ${name}`,
  }));
};

/** A promotion loses what the standby has not received. */
const asynchronous: Check = async ({ ask }) => {
  const rows = await ask<{ standbys: number }>(
    `select count(*)::int as standbys from pg_stat_replication r where r.application_name <> 'pg_basebackup'
     having count(*) > 0 and count(*) filter (where r.sync_state in ('sync', 'quorum')) = 0`,
  );
  return rows.map(({ standbys }) => ({
    id: "asynchronous-standby",
    severity: "info",
    sentence: `No standby is synchronous (of ${standbys}): if one is promoted, what it has not received is lost.`,
    mend: "alter system set synchronous_standby_names = 'ANY 1 (*)';\nselect pg_reload_conf(); -- docs/failover.md says what it costs",
  }));
};

/** The answer to a fetch was lost, or a local queue is larger than its workers can empty. */
const lockedIdle: Check = async ({ ask, thresholds }) => {
  const rows = await ask<{ host: string; pid: number; locked: number; slots: number }>(
    `select w.host, w.pid, w.slots, j.locked
     from :DISPATCH_POLICY_INTERNAL.workers w
     cross join lateral (
       select count(*)::int as locked from :GRAPHILE_WORKER_SCHEMA.jobs x
       where x.locked_by = w.pool_id and x.locked_at < clock_timestamp() - $1::text::interval) j
     where w.stale_at > clock_timestamp() and not w.ended and w.slots > 0 and j.locked > w.slots
     order by 1, 2 limit 20`,
    [interval(thresholds.lockedMs)],
  );
  return rows.map(({ host, pid, locked, slots }) => ({
    id: "locked-idle",
    severity: "warning",
    sentence: `The worker of process ${pid} on ${host} has ${locked} jobs locked for long, and runs ${slots} at once.`,
    mend: "Restart it: its jobs are unlocked and run again. If it has a local queue, make that smaller.",
  }));
};

/** Those that need no schema. */
export const serverFailoverChecks: readonly Check[] = [commitsEarly, asynchronous];
export const failoverChecks: readonly Check[] = [promoted, fixedIds, lockedIdle];
