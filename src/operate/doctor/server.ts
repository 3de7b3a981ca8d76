import { internalOf } from "../../db/schemas.ts";
import { interval } from "../../db/statements.ts";
import { name } from "../quoted.ts";
import { ago, type Check, where } from "./finding.ts";

/** Nothing can be written there. */
const replica: Check = async ({ ask }) => {
  const [row] = await ask<{ replica: boolean }>("select pg_is_in_recovery() as replica");
  return where(row?.replica === true, () => ({
    id: "replica",
    severity: "critical",
    sentence:
      "This connection leads to a replica, where nothing can be written: no job can be added or admitted.",
    mend: "Connect to the primary: correct DATABASE_URL, or add target_session_attrs=read-write for libpq's clients.",
  }));
};

/** Workers say it themselves, at their start. Of this connection it is no fault. */
const transactionPooler: Check = async ({ ask, isPooled, state }) => {
  const workers = state.found === null ? [] : await ask<{ host: string; pid: number }>(POOLED_WORKERS);
  const mend = "Connect workers directly, or through a pooler in session mode. Producers may stay.";
  return [
    ...workers.map(({ host, pid }) => ({
      id: "transaction-pooler" as const,
      severity: "warning" as const,
      sentence: `The worker of process ${pid} on ${host} is behind a pooler in transaction mode, which no notification passes.`,
      mend,
    })),
    ...where(isPooled, () => ({
      id: "transaction-pooler" as const,
      severity: "info" as const,
      sentence:
        "This connection goes through a pooler in transaction mode: that is right for producers, and wrong for workers.",
      mend,
    })),
  ];
};

const POOLED_WORKERS = `select w.host, w.pid from :DISPATCH_POLICY_INTERNAL.workers w
  where w.pooled and w.stale_at > clock_timestamp() and not w.ended order by w.host, w.pid limit 20`;

/** If it is full, every transaction fails that adds a job. */
const notifyQueue: Check = async ({ ask, thresholds }) => {
  const [row] = await ask<{ used: number }>("select pg_notification_queue_usage() as used");
  const used = row?.used ?? 0;
  return where(used > thresholds.notifyQueue, () => ({
    id: "notify-queue",
    severity: used > 0.75 ? "critical" : "warning",
    sentence: `PostgreSQL's notification queue is ${Number((used * 100).toPrecision(2))} % full. When it is full, no job can be added.`,
    mend: `-- a session that listens keeps it full while its transaction is open: end the oldest
select pid, usename, state, xact_start, query from pg_stat_activity
where xact_start is not null order by xact_start limit 5;
select pg_terminate_backend(pid);`,
  }));
};

interface Session {
  pid: number;
  role: string;
  application: string;
  state: string;
  seconds: number;
}

const SESSION = `a.pid, a.usename as role, a.application_name as application, a.state`;
const said = ({ pid, role, application }: Session) =>
  `Session ${pid} of ${role}${application ? ` (${application})` : ""}`;

/** Passes go round the rows that it has locked, so their jobs wait. */
const idleTransaction: Check = async ({ ask, thresholds, schema }) => {
  const rows = await ask<Session>(
    `select ${SESSION}, extract(epoch from clock_timestamp() - a.state_change)::float8 as seconds
     from pg_stat_activity a
     where a.datname = current_database() and a.state like 'idle in transaction%' and a.pid <> pg_backend_pid()
       and a.state_change < clock_timestamp() - $1::text::interval
       and exists (
         select from pg_locks l join pg_class c on c.oid = l.relation
         where l.pid = a.pid and l.mode <> 'AccessShareLock' and c.relnamespace = $2::text::regnamespace
           and l.database = (select d.oid from pg_database d where d.datname = current_database()))
     order by a.state_change limit 5`,
    [interval(thresholds.idleTransactionMs), name(internalOf(schema))],
  );
  return rows.map((session) => ({
    id: "idle-transaction",
    severity: "warning",
    sentence: `${said(session)} has been idle in a transaction for ${ago(session.seconds)}, and has locks on this package's tables.`,
    mend: `select pg_terminate_backend(${session.pid});`,
  }));
};

/** Dead rows would never go. */
const autovacuumOff: Check = async ({ ask, schema }) => {
  const [server] = await ask<{ off: boolean }>(
    "select current_setting('autovacuum') = 'off' or current_setting('track_counts') = 'off' as off",
  );
  if (server?.off)
    return [
      {
        id: "autovacuum-off",
        severity: "warning",
        sentence: "The server has no autovacuum, so hot tables grow without end.",
        mend: "alter system set autovacuum = on;\nalter system set track_counts = on;\nselect pg_reload_conf();",
      },
    ];
  const rows = await ask<{ name: string }>(
    `select c.relname as name from pg_class c
     where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and exists (
       select from pg_options_to_table(c.reloptions) o
       where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean)
     order by 1`,
    [name(internalOf(schema))],
  );
  return rows.map(({ name: table }) => ({
    id: "autovacuum-off",
    severity: "warning",
    sentence: `Autovacuum is switched off for table "${table}", so it grows without end.`,
    mend: `alter table ${name(internalOf(schema))}.${name(table)} reset (autovacuum_enabled);`,
  }));
};

/** Passes read past dead rows. */
const autovacuumBehind: Check = async ({ ask, schema, thresholds }) => {
  const rows = await ask<{ name: string; dead: number; live: number }>(
    `select s.relname as name, s.n_dead_tup as dead, s.n_live_tup as live from pg_stat_all_tables s
     where s.schemaname = $1::text and s.n_dead_tup > $2::float8 and s.n_dead_tup > s.n_live_tup / 2 order by 1`,
    [internalOf(schema), thresholds.deadRows],
  );
  return rows.map(({ name: table, dead, live }) => ({
    id: "autovacuum-behind",
    severity: "warning",
    sentence: `Table "${table}" has ${dead} dead rows beside ${live} live ones: autovacuum does not keep up.`,
    mend: `vacuum (analyze) ${name(internalOf(schema))}.${name(table)}; -- if that does not help, look for old-snapshot`,
  }));
};

/** A `RetryAfter` with a Date and a `runAt` are by the clock of the process; under `useNodeTime` fetches are, too. */
const clockOff: Check = async ({ ask, clock, thresholds, state }) => {
  const workers =
    state.found === null
      ? []
      : await ask<{ host: string; pid: number; behind: number }>(CLOCKS, [thresholds.clockMs]);
  const own = { host: "this machine", pid: process.pid, behind: clock.behindMs };
  const isOff = Math.abs(clock.behindMs) - clock.errorMs > thresholds.clockMs;
  return [...workers, ...where(isOff, () => own)].map(({ host, pid, behind }) => ({
    id: "clock-off",
    severity: "warning",
    sentence: `The clock of process ${pid} on ${host} is ${Math.abs(behind / 1000).toFixed(1)} s ${
      behind > 0 ? "behind" : "ahead of"
    } the database's.`,
    mend: "timedatectl set-ntp true # on that machine; then restart the worker",
  }));
};

const CLOCKS = `select w.host, w.pid, extract(epoch from w.clock_behind)::float8 * 1000 as behind
  from :DISPATCH_POLICY_INTERNAL.workers w
  where w.stale_at > clock_timestamp() and not w.ended and abs(extract(epoch from w.clock_behind)::float8) * 1000 > $1::float8
  order by w.host, w.pid limit 20`;

/** Those that need no schema. */
export const serverChecks: readonly Check[] = [replica, transactionPooler, notifyQueue, clockOff];
export const tableChecks: readonly Check[] = [idleTransaction, autovacuumOff, autovacuumBehind];
