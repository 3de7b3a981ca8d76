-- What passes and releases did, by minute.

-- Folds up to `p_limit` rows of activity, the oldest first, into their minutes and into the totals: a policy's row of the minute
-- '-infinity'. Returns how many rows it has folded. It skips rows that another process is folding.
--
-- What happened is appended, and the lists of times are counted here, because passes, routers and releases of many processes
-- would wait for each other at one row a minute.
create or replace function _fold_activity(p_limit int) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
set jit = off
as $$
declare
  v_folded int;
  v_caps jsonb;
begin
  with moved as materialized (
    delete from activity a
    where a.id = any(array(
      select o.id from activity o order by o.id limit p_limit for update skip locked))
    returning a.*, date_trunc('minute', a.at) as minute
  ),
  -- of each minute, and of all of them: the minute null
  listed as materialized (
    select c.policy_id, c.minute,
      jsonb_object_agg(c.bucket, c.jobs) filter (where c.kind = 'waits') as waits,
      sum(c.seconds) filter (where c.kind = 'waits') as wait_seconds,
      max(c.longest) filter (where c.kind = 'waits') as wait_max,
      jsonb_object_agg(c.bucket, c.jobs) filter (where c.kind = 'lags') as lags,
      sum(c.seconds) filter (where c.kind = 'lags') as lag_seconds,
      max(c.longest) filter (where c.kind = 'lags') as lag_max,
      jsonb_object_agg(c.bucket, c.jobs) filter (where c.kind = 'runs') as runs,
      sum(c.seconds) filter (where c.kind = 'runs') as run_seconds,
      max(c.longest) filter (where c.kind = 'runs') as run_max
    from (
      select m.policy_id, m.minute, k.kind, b.bucket, count(*) as jobs, sum(u.seconds::float8) as seconds,
        max(u.seconds::float8) as longest
      from moved m
      cross join lateral (values ('waits', m.waits), ('lags', m.lags), ('runs', m.runs)) k (kind, list)
      cross join unnest(k.list) u (seconds)
      cross join lateral (select _bucket(u.seconds) as bucket) b
      where u.seconds is not null
      group by m.policy_id, k.kind, b.bucket, grouping sets ((m.minute), ())
    ) c group by c.policy_id, c.minute
  ),
  summed as materialized (
    select m.policy_id, m.minute, sum(m.passes) as passes, sum(m.pass_seconds) as pass_seconds,
      max(m.at) filter (where m.passes > 0) as last_pass_at, sum(m.staged) as staged, sum(m.admitted) as admitted,
      _sum_of_counts(m.denied) as denied,
      _sum_of_counts(m.shadow_denied) filter (where m.shadow_denied <> '{}') as shadow_denied,
      _sum_of_counts(m.left_to_pass) filter (where m.left_to_pass <> '{}') as left_to_pass,
      sum(m.quarantined) as quarantined, sum(m.dropped) as dropped, sum(m.expired) as expired, sum(m.delayed) as delayed,
      sum(m.succeeded) as succeeded, sum(m.failed) as failed
    from moved m group by m.policy_id, grouping sets ((m.minute), ())
  ),
  kept as (
    insert into minutes as m (
      policy_id, minute, passes, pass_seconds, last_pass_at, staged, admitted, denied, shadow_denied, left_to_pass,
      quarantined, dropped, expired, delayed, succeeded, failed, waits, wait_seconds, wait_max, lags, lag_seconds, lag_max,
      runs, run_seconds, run_max)
    select s.policy_id, coalesce(s.minute, '-infinity'), s.passes, s.pass_seconds, s.last_pass_at, s.staged, s.admitted,
      s.denied, s.shadow_denied, s.left_to_pass, s.quarantined, s.dropped, s.expired, s.delayed, s.succeeded, s.failed,
      coalesce(l.waits, '{}'), coalesce(l.wait_seconds, 0), l.wait_max, coalesce(l.lags, '{}'), coalesce(l.lag_seconds, 0),
      l.lag_max, coalesce(l.runs, '{}'), coalesce(l.run_seconds, 0), l.run_max
    from summed s
    left join listed l on l.policy_id = s.policy_id and l.minute is not distinct from s.minute
    order by 1, 2
    on conflict (policy_id, minute) do update set
      passes = m.passes + excluded.passes, pass_seconds = m.pass_seconds + excluded.pass_seconds,
      last_pass_at = greatest(m.last_pass_at, excluded.last_pass_at),
      staged = m.staged + excluded.staged, admitted = m.admitted + excluded.admitted,
      denied = _sum_by_key(m.denied, excluded.denied),
      shadow_denied = case when excluded.shadow_denied = '{}' then m.shadow_denied
        else _sum_by_key(m.shadow_denied, excluded.shadow_denied) end,
      left_to_pass = case when excluded.left_to_pass = '{}' then m.left_to_pass
        else _sum_by_key(m.left_to_pass, excluded.left_to_pass) end,
      quarantined = m.quarantined + excluded.quarantined, dropped = m.dropped + excluded.dropped,
      expired = m.expired + excluded.expired, delayed = m.delayed + excluded.delayed,
      succeeded = m.succeeded + excluded.succeeded, failed = m.failed + excluded.failed,
      waits = _sum_by_key(m.waits, excluded.waits), wait_seconds = m.wait_seconds + excluded.wait_seconds,
      wait_max = greatest(m.wait_max, excluded.wait_max),
      lags = _sum_by_key(m.lags, excluded.lags), lag_seconds = m.lag_seconds + excluded.lag_seconds,
      lag_max = greatest(m.lag_max, excluded.lag_max),
      runs = _sum_by_key(m.runs, excluded.runs), run_seconds = m.run_seconds + excluded.run_seconds,
      run_max = greatest(m.run_max, excluded.run_max)
  )
  select count(*), (
    select jsonb_agg(jsonb_build_object('policy', m.policy_id, 'minute', m.minute) || c.value order by m.id)
    from moved m cross join jsonb_array_elements(m.caps) c)
  into v_folded, v_caps from moved;
  -- Of the caps that changed, the lowest of the minute and the last. Ten limiters of a policy and minute are kept: those that it
  -- has already, then those with the lowest caps.
  if v_caps is not null then
    update minutes m set caps = (
        select jsonb_agg(to_jsonb(k)) from (
          select gate, key, least(o.lowest, n.lowest) as lowest, coalesce(n.last, o.last) as last
          from jsonb_to_recordset(m.caps) o (gate text, key text, lowest int, last int)
          full join jsonb_to_recordset(c.caps) n (gate text, key text, lowest int, last int) using (gate, key)
          order by o.lowest is null, n.lowest, gate, key limit 10) k)
    from (
      select x.policy, x.minute, jsonb_agg(x) as caps
      from (
        select e.policy, e.minute, e.gate, e.key, min(e.cap) as lowest, (array_agg(e.cap order by e.n desc))[1] as last
        from rows from (jsonb_to_recordset(v_caps) as (policy int, minute timestamptz, gate text, key text, cap int))
          with ordinality e (policy, minute, gate, key, cap, n)
        group by e.policy, e.minute, e.gate, e.key
      ) x group by x.policy, x.minute
    ) c where m.policy_id = c.policy and m.minute = c.minute;
  end if;
  return v_folded;
end
$$;

-- Adds what a sweep repaired, by kind, to the totals.
create or replace function _count_repairs(p_repaired jsonb) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update all_policies set repaired = _sum_by_key(repaired, p_repaired);
$$;
