-- Who keeps PostgreSQL from removing dead rows of this database, and began to longer ago than `p_older_than`. At most five,
-- the oldest first. `transactions` counts those that have written since: the rows that died in them are kept.
--
-- PostgreSQL knows no time for a slot or a standby, and shows a role without pg_read_all_stats none of other roles' sessions.
-- Then `seconds` is null, and there must be `p_transactions` at least.
--
-- A transaction of another database that only reads keeps nothing here. One that has written does: each snapshot that is
-- taken here regards it as running, and so reaches back to where it began. A slot counts for all databases.
create or replace function _old_snapshots(
  p_now timestamptz, p_older_than interval, p_transactions bigint
) returns table (
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
