-- Metrics.

-- The figures of all policies, for a monitoring system: one row for each name and set of labels.
-- docs/production.md#the-metrics lists the names. Totals count what workers have folded, which they do twice a minute.
--
--   names   only these. What takes long and is not among them is not worked out. Null: all
--
--   select * from dispatch_policy.metrics('{admissible_jobs}');
create or replace function :DISPATCH_POLICY_SCHEMA.metrics(names text[] default null)
returns table (name text, labels jsonb, value float8)
language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query select * from _figures(v_now, null, metrics.names);
  return query
  select m.name, '{}'::jsonb, m.value
  from (
    select count(*)::float8 as workers, coalesce(sum(w.slots), 0)::float8 as slots
    from workers w where w.stale_at > v_now and not w.ended
  ) w
  cross join (
    select count(*)::float8 as open, coalesce(extract(epoch from v_now - min(g.created_at)), 0)::float8 as age from groups g
  ) g
  cross join lateral (
    values ('workers', w.workers), ('worker_slots', w.slots), ('open_groups', g.open),
      ('oldest_group_age_seconds', greatest(g.age, 0)), ('notification_queue_usage_ratio', pg_notification_queue_usage())
  ) m (name, value)
  where metrics.names is null or m.name = any(metrics.names)
  union all
  select 'sweep_repairs_total', jsonb_build_object('kind', r.key), r.value::float8
  from all_policies a cross join jsonb_each_text(a.repaired) r
  where metrics.names is null or 'sweep_repairs_total' = any(metrics.names);
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.metrics from public;

-- The figures of a policy, or of all (null), of these names, or all (null).
create or replace function _figures(p_now timestamptz, p_policy_id int, p_names text[])
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  -- what is true of each policy now, and what its passes and releases have done since it was declared
  return query
  select m.name, jsonb_build_object('policy', p.name) || m.labels, m.value
  from policies p
  left join minutes t on t.policy_id = p.id and t.minute = '-infinity'
  cross join lateral (
    values
      ('policy_info', jsonb_build_object('version', p.version::text), 1::float8),
      ('policy_enabled', '{}', case when p.enabled then 1 else 0 end),
      ('policy_paused', '{}', case when p.paused_until > p_now then 1 else 0 end),
      ('policy_has_worker', '{}', case when exists (
        select from workers w
        where w.stale_at > p_now and not w.ended and w.definitions ? p.name) then 1 else 0 end),
      ('oldest_due_age_seconds', '{}', case when p_names is null or 'oldest_due_age_seconds' = any(p_names) then (
        select v.oldest_due_age_seconds from :DISPATCH_POLICY_SCHEMA.policies v where v.policy = p.name) end),
      ('in_flight_jobs', '{}', (select l.in_flight from limiters l where l.id = p.ahead_limiter_id)),
      ('admissible_jobs', '{}', case when p_names is null or 'admissible_jobs' = any(p_names) then _admissible_jobs(p, p_now) end),
      ('last_pass_age_seconds', '{}', extract(epoch from p_now - greatest(t.last_pass_at, (
        select max(a.at) from activity a where a.policy_id = p.id and a.passes > 0)))),
      ('staged_total', '{}', coalesce(t.staged, 0)),
      ('admitted_total', '{}', coalesce(t.admitted, 0)),
      ('quarantined_total', '{}', coalesce(t.quarantined, 0)),
      ('dropped_total', '{}', coalesce(t.dropped, 0)),
      ('expired_total', '{}', coalesce(t.expired, 0)),
      ('delayed_total', '{}', coalesce(t.delayed, 0)),
      ('finished_total', '{"outcome": "succeeded"}', coalesce(t.succeeded, 0)),
      ('finished_total', '{"outcome": "failed"}', coalesce(t.failed, 0)),
      ('ended_elsewhere_total', '{}', p.ended_elsewhere),
      ('pass_duration_seconds_sum', '{}', coalesce(t.pass_seconds, 0)),
      ('pass_duration_seconds_count', '{}', coalesce(t.passes, 0))
    union all
    select 'shadow_denied_total', jsonb_build_object('gate', g.name), coalesce((t.shadow_denied ->> g.name)::float8, 0)
    from (
      select x.value ->> 'name' from jsonb_array_elements(p.definition -> 'gates') x
      where x.value #>> '{constants,shadow}' = 'true'
      union
      select jsonb_object_keys(t.shadow_denied)   -- those that are real by now
    ) g (name)
    union all
    select 'policy_shares_limit', jsonb_build_object('limit', x.value ->> 'name'), 1
    from jsonb_array_elements(p.definition -> 'gates') x where x.value ? 'shared' and not p.shared
    union all
    select 'left_to_pass_total', jsonb_build_object('reason', r.key), r.value::float8 from jsonb_each_text(t.left_to_pass) r
  ) m (name, labels, value)
  where m.value is not null and (p_policy_id is null or p.id = p_policy_id) and (p_names is null or m.name = any(p_names));
  if p_names is null or p_names && '{staged_jobs,waiting_partitions}' then
    return query select * from _waiting_figures(p_policy_id, p_names);
  end if;
  if p_names is null or p_names && '{limiter_utilization_ratio,full_limiters,limiters_over_limit,adaptive_limit,limiters_at_minimum}' then
    return query select * from _gate_figures(p_policy_id, p_names, p_now);
  end if;
  -- How long jobs waited until their admission, how long they then waited to start, and how long they ran. The quantiles are
  -- those of this minute and the five before, as far as they are folded. 1 is the longest.
  return query
  with kind as not materialized (
    select p.name as policy, m.minute, k.name, k.counts, k.seconds, k.longest
    from policies p
    join minutes m on m.policy_id = p.id
    cross join lateral (
      values ('wait_seconds', m.waits, m.wait_seconds, m.wait_max), ('queue_lag_seconds', m.lags, m.lag_seconds, m.lag_max),
        ('run_seconds', m.runs, m.run_seconds, m.run_max)
    ) k (name, counts, seconds, longest)
    where p_policy_id is null or p.id = p_policy_id
  ),
  late as (
    select k.name, k.policy, _sum_of_counts(k.counts) as counts, max(k.longest) as longest
    from kind k where k.minute >= date_trunc('minute', p_now) - interval '5 minutes' group by k.name, k.policy
  )
  select l.name, jsonb_build_object('policy', l.policy, 'quantile', q.share), q.seconds
  from late l
  cross join lateral (
    values ('0.5', _quantile(0.5, l.counts, l.longest)), ('0.95', _quantile(0.95, l.counts, l.longest)), ('1', l.longest)
  ) q (share, seconds)
  where l.counts <> '{}' and q.seconds is not null and (p_names is null or l.name = any(p_names))
  union all
  select k.name || x.suffix, jsonb_build_object('policy', k.policy), x.value
  from kind k
  cross join lateral (
    values ('_sum', k.seconds), ('_count', (select coalesce(sum(e.value::float8), 0) from jsonb_each_text(k.counts) e))
  ) x (suffix, value)
  where k.minute = '-infinity' and (p_names is null or k.name || x.suffix = any(p_names));
end
$$;

-- What waits, by what it waits for.
create or replace function _waiting_figures(p_policy_id int, p_names text[])
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  with waiting as materialized (
    select w.* from _waiting_partitions(p_policy_id) w
  )
  select x.name, jsonb_build_object('policy', x.policy, 'reason', x.reason), x.value::float8
  from (
    select 'staged_jobs', w.policy, w.reason, w.jobs from waiting w
    union all
    -- what the router has not counted yet, and what has no partition yet
    select 'staged_jobs', p.name, 'unrouted', greatest(
      (select coalesce(sum(a.jobs), 0) from arrivals a where a.policy = p.name)
      + (select count(*) from keyless_jobs k where k.policy = p.name), 0)
    from policies p where p_policy_id is null or p.id = p_policy_id
    union all
    select 'waiting_partitions', w.policy, w.reason, w.partitions from waiting w
  ) x (name, policy, reason, value)
  where p_names is null or x.name = any(p_names);
end
$$;

-- How full the caps of each gate are. A shadow gate is never over its limit, because it has none. Only limiters that jobs
-- occupy count, at most 10,000 of a policy.
create or replace function _gate_figures(p_policy_id int, p_names text[], p_now timestamptz)
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  with gate as materialized (
    select p.name as policy, l.gate, max(l.in_flight::float8 / nullif(l.cap, 0)) as used,
      count(*) filter (where l.in_flight >= l.cap) as full,
      count(*) filter (where l.in_flight > l.cap and l.shadow_slots is null) as over,
      min(l.cap) filter (where l.kind = 'adaptive_concurrency') as least,
      count(*) filter (where case when l.kind = 'adaptive_concurrency' then l.cap <= (   -- only of these: else it joins them all
        select (o.numbers).min from limiters o where o.id = l.id) end) as lowest
    from policies p
    cross join lateral _rooms_of(array(
      select x.id from limiters x
      where x.policy_id = p.id and x.in_flight > 0 and x.kind <> 'ahead' and not x.by_tokens limit 10000), p_now, false) l
    where p_policy_id is null or p.id = p_policy_id
    group by p.name, l.gate
  )
  select m.name, jsonb_build_object('policy', g.policy, 'gate', g.gate), m.value::float8
  from gate g
  cross join lateral (
    values ('limiter_utilization_ratio', g.used), ('full_limiters', g.full), ('limiters_over_limit', g.over),
      ('adaptive_limit', g.least), ('limiters_at_minimum', case when g.least is not null then g.lowest end)
  ) m (name, value)
  where m.value is not null and (p_names is null or m.name = any(p_names));
end
$$;

-- How many partitions have staged jobs, and how many jobs these are, by what they wait for, as the view policies has it.
--
--   p_policy_id   null: of all policies
create or replace function _waiting_partitions(p_policy_id int)
returns table (policy text, reason text, partitions bigint, jobs bigint) language plpgsql stable as $$
begin
  return query
  select v.policy, w.reason, w.partitions, w.jobs
  from :DISPATCH_POLICY_SCHEMA.policies v
  cross join lateral jsonb_to_recordset(v.waiting) w (reason text, partitions bigint, jobs bigint)
  where p_policy_id is null or v.policy = (select p.name from policies p where p.id = p_policy_id);
end
$$;

-- How many due jobs the gates of a policy would let go now, if there were workers for them: the ahead bound does not count. An
-- autoscaler adds workers for these, and not for a backlog that limits keep back.
--
-- It asks the rule that passes ask, without a lock, of the 100 partitions that are next in fair order: there may be more. A
-- policy that is paused has none.
create or replace function _admissible_jobs(p_policy policies, p_now timestamptz) returns int language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _admit
as $$
declare
  v_shards text[];
  v_partition_ids uuid[];
begin
  if (p_policy).paused_until > p_now then
    return 0;
  end if;
  v_shards := _shards((p_policy).id);
  -- Each shard is asked by itself, as in _claim: over several the index has no order, and all ready partitions would be sorted
  v_partition_ids := array(
    select c.id from (
      select x.* from unnest(v_shards) s (shard)
      cross join lateral (
        select q.id, q.fair_key from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and q.ready and q.eligible_at <= p_now
        order by q.fair_key limit 100) x
      union
      -- those that nobody has looked at since: the last pass was before, or nobody ticks
      select x.* from unnest(v_shards) s (shard)
      cross join lateral (
        select q.id, q.fair_key from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and not q.ready
          and q.eligible_at < 'infinity' and q.eligible_at <= p_now
        order by q.eligible_at limit 100) x
      union
      (select q.id, q.fair_key from partitions q
        where q.blocked_on = (p_policy).ahead_limiter_id order by q.fair_key limit 100)
    ) c order by c.fair_key limit 100);
  if v_partition_ids = '{}' then
    return 0;
  end if;
  return (
    select count(*) from unnest(case when (p_policy).enabled
      then _allocate(p_policy, _claimed(v_partition_ids, '{}'),
        array(select l from _rooms_of(_limiters_of(v_partition_ids), p_now, false) l), p_now)
      else array(select f from _first_due(v_partition_ids, (p_policy).batch_size, null) f) end) c
    where c.chosen);
end
$$;
