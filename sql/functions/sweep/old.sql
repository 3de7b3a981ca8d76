-- Old rows go.

-- Deletes rows of a table that are too old, at most 10,000 a call, so that no transaction takes long. A sweep calls it until none
-- is left. It skips rows that another session has locked. Returns how many it has deleted.
--
--   p_kept_for   of the audit and of minutes. Of the others each policy says it, or keeps none any more
create or replace function _collect_old(p_table text, p_now timestamptz, p_kept_for interval default null)
returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
  v_old text := case p_table
    when 'audit' then 'audit o where o.at < $1 - $2 order by o.at'
    when 'minutes' then 'minutes o where o.minute > ''-infinity'' and o.minute < $1 - $2 order by o.minute'
    when 'load' then 'policies p join load o on o.policy_id = p.id
      where p.load_kept_for is null or o.minute < $1 - make_interval(secs => p.load_kept_for + 60)'
    when 'history' then 'policies p join history o on o.policy_id = p.id
      where p.history_kept_for is null or o.ended_at < $1 - make_interval(secs => p.history_kept_for)'
    -- the last reason of a partition stays, because it is in force
    when 'waits' then 'policies p join waits o on o.policy_id = p.id
      where p.history_kept_for is null
        or (coalesce(o.until_at, o.from_at) < $1 - make_interval(secs => p.history_kept_for) and (
          o.until_at is not null or not exists (select from partitions q where q.id = o.partition_id)
          or exists (
            select from waits l where l.partition_id = o.partition_id and l.until_at is null
              and l.from_at > o.from_at and l.from_at < $1 - make_interval(secs => p.history_kept_for))))'
    -- of policies that were removed meanwhile
    when 'events' then 'events o where not exists (select from policies p where p.id = o.policy_id)' end;
begin
  execute format('delete from %I x where x.ctid = any(array(select o.ctid from %s limit 10000 for update of o skip locked))',
    p_table, v_old)
  using p_now, p_kept_for;
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;

-- Deletes overrides that ended more than a day ago, once every bucket has been filled since. Until then they say what a
-- bucket gained under them.
create or replace function _collect_overrides(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  with over as materialized (select o.* from overrides o where o.until_at < p_now - interval '1 day'),
  -- once for each gate
  oldest as materialized (
    select g.*, (
      select min(l.refilled_at) from limiters l
      where l.policy_id = g.policy_id and l.gate = g.gate and (g.scope_key is null or l.scope_key = g.scope_key)
        and l.by_tokens and not _is_window(l.numbers)) as refilled_at
    from (select distinct o.policy_id, o.gate, o.scope_key from over o) g
  )
  delete from overrides o
  where o.id in (
    select x.id from over x
    join oldest g on (g.policy_id, g.gate) = (x.policy_id, x.gate) and g.scope_key is not distinct from x.scope_key
    where coalesce(g.refilled_at, 'infinity') >= x.until_at);
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;

-- Completes originals that wait although they were copied, and deletes the records of those that Graphile Worker does
-- not have any more.
create or replace function _forget_copied() returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
  select _complete_copied(null);
  delete from superseded_jobs o
  where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = o.job_id);
$$;

-- Who keeps PostgreSQL from removing dead rows of this database, and began to longer ago than `p_older_than`. At most five, the
-- oldest first. `transactions` counts those that have written since: the rows that died in them are kept.
--
-- PostgreSQL knows no time for a slot or a standby, and shows a role without pg_read_all_stats none of other roles' sessions.
-- Then `seconds` is null, and there must be `p_transactions` at least.
--
-- A transaction of another database that only reads keeps nothing here. One that has written does: each snapshot that is taken
-- here reaches back to where it began. A slot counts for all databases.
create or replace function _old_snapshots(p_now timestamptz, p_older_than interval, p_transactions bigint)
returns table (
  kind text, name text, pid int, role text, application text, state text, database text, since timestamptz, seconds float8,
  transactions int
) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with held (kind, name, pid, role, application, state, database, since, has_written, transactions) as (
    select case when a.datid is null then 'standby' else 'session' end, null::text, a.pid, a.usename::text,
      a.application_name, a.state, a.datname::text, a.xact_start, a.backend_xid is not null,
      case when a.datid is null or a.datname = current_database()
        then greatest(age(a.backend_xid), age(a.backend_xmin)) else age(a.backend_xid) end
    from pg_stat_activity a
    where a.pid <> pg_backend_pid() and a.leader_pid is null and coalesce(a.backend_type, '') not like 'autovacuum%'
      and not exists (select from pg_stat_progress_vacuum v where v.pid = a.pid) -- it disregards its own snapshot
    union all
    select 'prepared', t.gid, null, t.owner::text, null, null, t.database::text, t.prepared, true, age(t.transaction)
    from pg_prepared_xacts t
    union all
    select 'slot', s.slot_name::text, s.active_pid, null, null, null, null, null, false, age(s.xmin)
    from pg_replication_slots s where s.wal_status is distinct from 'lost'
  )
  select h.kind, h.name, h.pid, h.role, h.application, h.state, nullif(h.database, current_database()),
    h.since, extract(epoch from p_now - h.since)::float8, h.transactions
  from held h
  where (h.since < p_now - p_older_than or h.since is null and h.transactions >= p_transactions)
    -- a statement that has just begun, in a transaction that reads since long ago, keeps no more than one of now
    and (h.has_written or h.transactions > age(pg_snapshot_xmin(pg_current_snapshot())::xid))
    and not pg_is_in_recovery()
  order by h.transactions desc, h.pid limit 5;
$$;

-- Whether a job of the policy was fetched or ended in the last five minutes: a host that is no worker pool may run it
-- (wrapTaskList). Not whether one was admitted, which any worker's crontab task does.
create or replace function _runs_elsewhere(p_policy_id int) returns boolean language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select exists (
      select from activity a
      where a.policy_id = p_policy_id and a.at > clock_timestamp() - interval '5 minutes' and a.succeeded + a.failed > 0)
    or exists (
      select from minutes m
      where m.policy_id = p_policy_id and m.minute > clock_timestamp() - interval '5 minutes' and m.succeeded + m.failed > 0)
    or exists (
      select from in_flight_jobs f
      cross join lateral (select x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
      where f.policy_id = p_policy_id and j.locked_at > clock_timestamp() - interval '5 minutes');
$$;

-- The policies for which jobs wait, and which no live worker pool has, with the number of those jobs, up to 10,000: renamed or
-- removed in the code, or never declared, while a process that knows them adds jobs.
create or replace function _orphaned_policies()
returns table (policy text, jobs int, declared boolean) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with named as (
    select p.name, true as declared from policies p
    union all
    select u.policy, false from :DISPATCH_POLICY_SCHEMA.undeclared_policies u
  ),
  alone as materialized (
    select n.name, n.declared from named n
    where not exists (
        select from workers w where w.stale_at > clock_timestamp() and not w.ended and w.definitions ? n.name)
      and not exists (select from policies p where p.name = n.name and _runs_elsewhere(p.id))
  )
  select n.name, w.jobs, n.declared
  from alone n
  cross join lateral (select count(*)::int as jobs from (select from _staged_of(n.name) s limit 10000) x) w
  where w.jobs > 0;
$$;
