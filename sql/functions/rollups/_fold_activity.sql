-- Folds up to `p_limit` rows of activity, the oldest first, into their minutes and into the totals. Returns how many rows
-- it has folded. It skips rows that another process is folding. A policy's totals are its row of the minute '-infinity'. The
-- load of policies that record it goes into load, and caps that changed go into caps.
--
-- What happened is appended, because passes, routers and releases of many processes would wait for each other at one row a
-- minute. The lists of times are counted here for the same reason: it costs the pass nothing.
create or replace function _fold_activity(p_limit int) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
set jit = off
as $$
declare
  v_folded int;
  v_load load_change[];
  v_caps cap_change[];
begin
  with moved as materialized (
    delete from activity a
    where a.id = any(array(
      select o.id from activity o order by o.id limit p_limit for update skip locked))
    returning a.*, date_trunc('minute', a.at) as minute
  ),
  counted as materialized (
    select m.policy_id, m.minute, k.kind,
      _bucket(u.seconds) as bucket,
      count(*) as jobs, sum(u.seconds) as seconds
    from moved m
    cross join lateral (values ('waits', m.waits), ('lags', m.lags), ('runs', m.runs)) k (kind, list)
    cross join unnest(k.list) u (seconds)
    where u.seconds is not null group by 1, 2, 3, 4
  ),
  listed as materialized (
    select c.policy_id, c.minute, c.kind, jsonb_object_agg(c.bucket, c.jobs) as counts, sum(c.seconds) as seconds
    from counted c group by c.policy_id, c.minute, c.kind
  ),
  summed as materialized (
    select m.policy_id, m.minute, sum(m.passes) as passes, sum(m.pass_seconds) as pass_seconds, sum(m.staged) as staged,
      sum(m.admitted) as admitted, _sum_of_counts(m.denied) as denied,
      _sum_of_counts(m.shadow_denied) filter (where m.shadow_denied <> '{}') as shadow_denied,
      _sum_of_counts(m.left_to_pass) filter (where m.left_to_pass <> '{}') as left_to_pass,
      sum(m.quarantined) as quarantined, sum(m.dropped) as dropped, sum(m.expired) as expired, sum(m.delayed) as delayed,
      sum(m.succeeded) as succeeded, sum(m.failed) as failed,
      max(m.at) filter (where m.passes > 0) as last_pass_at
    from moved m group by m.policy_id, m.minute
  ),
  folded as materialized (
    select s.policy_id, s.minute, s.passes, s.pass_seconds, s.staged, s.admitted, s.denied, s.shadow_denied, s.left_to_pass,
      s.quarantined,
      s.dropped, s.expired, s.delayed, s.succeeded, s.failed,
      coalesce(w.counts, '{}') as waits, coalesce(w.seconds, 0) as wait_seconds,
      coalesce(l.counts, '{}') as lags, coalesce(l.seconds, 0) as lag_seconds,
      coalesce(r.counts, '{}') as runs, coalesce(r.seconds, 0) as run_seconds, s.last_pass_at
    from summed s
    left join listed w on (w.policy_id, w.minute, w.kind) = (s.policy_id, s.minute, 'waits')
    left join listed l on (l.policy_id, l.minute, l.kind) = (s.policy_id, s.minute, 'lags')
    left join listed r on (r.policy_id, r.minute, r.kind) = (s.policy_id, s.minute, 'runs')
  ),
  kept as (
    insert into minutes as m (
      policy_id, minute, passes, pass_seconds, last_pass_at, staged, admitted, denied, shadow_denied, left_to_pass,
      quarantined, dropped, expired, delayed, succeeded, failed, waits, wait_seconds, lags, lag_seconds, runs, run_seconds)
    select f.policy_id, coalesce(f.minute, '-infinity'), sum(f.passes), sum(f.pass_seconds), max(f.last_pass_at),
      sum(f.staged), sum(f.admitted), _sum_of_counts(f.denied),
      _sum_of_counts(f.shadow_denied), _sum_of_counts(f.left_to_pass), sum(f.quarantined), sum(f.dropped), sum(f.expired),
      sum(f.delayed), sum(f.succeeded), sum(f.failed),
      _sum_of_counts(f.waits), sum(f.wait_seconds),
      _sum_of_counts(f.lags), sum(f.lag_seconds),
      _sum_of_counts(f.runs), sum(f.run_seconds)
    from folded f group by grouping sets ((f.policy_id, f.minute), (f.policy_id)) order by 1, 2
    on conflict (policy_id, minute) do update set
      passes = m.passes + excluded.passes, pass_seconds = m.pass_seconds + excluded.pass_seconds,
      last_pass_at = greatest(m.last_pass_at, excluded.last_pass_at),
      staged = m.staged + excluded.staged, admitted = m.admitted + excluded.admitted,
      denied = _sum_counts(m.denied, excluded.denied),
      shadow_denied = case when excluded.shadow_denied = '{}' then m.shadow_denied
        else _sum_counts(m.shadow_denied, excluded.shadow_denied) end,
      left_to_pass = case when excluded.left_to_pass = '{}' then m.left_to_pass
        else _sum_counts(m.left_to_pass, excluded.left_to_pass) end,
      quarantined = m.quarantined + excluded.quarantined, dropped = m.dropped + excluded.dropped,
      expired = m.expired + excluded.expired, delayed = m.delayed + excluded.delayed,
      succeeded = m.succeeded + excluded.succeeded, failed = m.failed + excluded.failed,
      waits = _sum_counts(m.waits, excluded.waits),
      wait_seconds = m.wait_seconds + excluded.wait_seconds,
      lags = _sum_counts(m.lags, excluded.lags),
      lag_seconds = m.lag_seconds + excluded.lag_seconds,
      runs = _sum_counts(m.runs, excluded.runs),
      run_seconds = m.run_seconds + excluded.run_seconds
  )
  select count(*), (select array_agg(u::load_change) from moved m cross join unnest(m.load) u),
    (select array_agg(u::cap_change order by m.id) from moved m cross join unnest(m.caps) u)
  into v_folded, v_load, v_caps from moved;
  perform _fold_load(v_load) where v_load is not null;
  perform _fold_caps(v_caps) where v_caps is not null;
  return v_folded;
end
$$;
