-- Lowers times to now that a clock left too far ahead, if no pass would correct them. It skips locked rows: the next sweep
-- comes to them. (_sweep_workers does so for pools, and _lease for leases.)
create or replace function _sweep_clock(p_now timestamptz) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
  -- one whose time is an hour ahead would come after all others for an hour
  update partitions q
  set looked_at = p_now, fair_key = _fair_key(
    p, _decayed(q.decayed_admits, q.decayed_at, p.half_life, p_now), q.mean_work, q.weight, p_now)
  from policies p
  where p.id = q.policy_id and q.id = any(array(
    select x.id from partitions x
    where (x.blocked_on is not null or x.ready) and x.looked_at > p_now + interval '1 second'
    order by x.id limit 10000 for no key update skip locked));
  update partitions q set breaker_until = p_now
  where q.id = any(array(
    select x.id from partitions x
    join policies p on p.id = x.policy_id
    where x.breaker_until > '-infinity' and x.breaker_until > p_now + make_interval(secs => p.breaker_cooldown) + interval '1 second' order by x.id
    for no key update of x skip locked));
  -- an override that began or ended by that clock does so again, and waiters would not be woken
  update overrides o
  set announced_to = null, announce_at = _turns_at(o, p_now)
  where o.id = any(array(
    select x.id from overrides x
    where not x.taken_back and ((x.from_at > p_now and x.announce_at > x.from_at)
      or (x.from_at <= p_now and x.until_at > p_now and x.announce_at > x.until_at))
    order by x.id for update skip locked));
  update staged_jobs s set retry_at = p_now
  where s.ctid = any(array(
    select x.ctid from partitions q
    cross join lateral (   -- one look at the index for each partition
      select y.ctid, y.id from staged_jobs y
      where y.partition_id = q.id and not y.due order by coalesce(y.retry_at, y.run_at) limit 1
    ) e
    join staged_jobs x on x.id = e.id
    where q.due_at > p_now + interval '1 minute' and q.due_at < 'infinity' and x.retry_at < 'infinity'
      and x.retry_at > p_now + _longest_quarantine(x.failures)
    for update of x skip locked));
  update keyless_jobs k set retry_at = p_now
  where k.staged_id = any(array(
    select x.staged_id from keyless_jobs x
    where x.retry_at > p_now + _longest_quarantine(x.failures) and x.retry_at < 'infinity'
    for update skip locked));
  update in_flight_jobs f set missing_since = p_now
  where f.job_id = any(array(
    select x.job_id from in_flight_jobs x
    where x.missing_since > p_now + interval '1 second' for update skip locked));
  -- a key would be remembered for as much longer
  update unique_ends e set ended_at = p_now
  where e.staged_id = any(array(
    select x.staged_id from policies p
    cross join lateral (
      select y.staged_id from unique_ends y
      where y.policy_id = p.id and y.ended_at > p_now + interval '1 second' limit 10000 for update skip locked
    ) x));
  update unique_keys k set look_at = p_now
  where (k.policy_id, k.job_key) in (
    select x.policy_id, x.job_key from unique_keys x
    where x.look_at > p_now + (
      select make_interval(secs => max(greatest(p.unique_for, 60))) from policies p
      where p.unique_for is not null) + interval '1 minute'
    order by x.look_at limit 10000 for update skip locked);
$$;
