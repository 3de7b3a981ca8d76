-- The figures of all policies, for a monitoring system: one row for each name and set of labels. docs/metrics.md says what
-- each name means. Totals count what workers have folded, which they do twice a minute.
--
--   select * from dispatch_policy.metrics() where name = 'admissible_jobs';
create or replace function :DISPATCH_POLICY_SCHEMA.metrics() returns table (name text, labels jsonb, value float8)
language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query select * from _policy_metrics(v_now, null);
  return query select * from _partition_metrics(v_now, null);
  return query select * from _limiter_metrics(v_now, null);
  return query select * from _time_metrics(v_now, null);
  return query
    select 'workers', '{}'::jsonb, count(*)::float8 from workers w
    where w.stale_at > v_now and not w.ended;
  return query
    select 'worker_slots', '{}'::jsonb, coalesce(sum(w.slots), 0)::float8 from workers w
    where w.stale_at > v_now and not w.ended;
  return query
    select 'sweep_repairs_total', jsonb_build_object('kind', r.kind), r.repaired::float8
    from repairs r;
  return query
    select m.name, '{}'::jsonb, m.value
    from (
      select count(*)::float8 as open, coalesce(extract(epoch from v_now - min(g.created_at)), 0)::float8 as age
      from groups g
    ) x
    cross join lateral (values ('open_groups', x.open), ('oldest_group_age_seconds', greatest(x.age, 0))) m (name, value);
  return query select 'notification_queue_usage_ratio', '{}'::jsonb, pg_notification_queue_usage();
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.metrics from public;
