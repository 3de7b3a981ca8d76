-- Passes freed slots on: admits the next jobs of the partitions that wait for these limiters, their own, in the transaction
-- of the release. So the next job needs no routing step and no pass. It is a pass over partitions that a release found, and
-- not _claim. All rules stand in _admit_locked.
--
-- It takes nobody's turn. So it leaves a partition to the next pass if somebody else waits for one of its limiters. It also
-- does so if a pass would find work now. Such work are arrivals, which may bring an earlier job or other limits, and
-- partitions of its shard that are eligible. Partitions that are stopped or probed are left, and all of policies with a
-- budget, a breaker or fairness by work. What only a pass reports is left as well: jobs that expire, are skipped or are set
-- aside.
--
-- The danger: a job that waits for another transaction, or that Graphile Worker refuses, would delay the release and all
-- who wait for its limiters. The cure: it waits for 5 ms, and the next pass meets such a job.
--
-- The limiter of a partition that is left gets a freed row, and its loop is notified. It is also notified if a partition
-- waits for a time now, because loops sleep until the earliest time that they know of.
--
--   p_now       null: the database clock, read after the locks
--   passed_on   json array of { "policy", "jobs" }: how many went; null: none
--   leaves      some partitions are left to the next pass, or wait for a time
--
-- Locks: the caller has locked limiters (`p_locked`). This locks partitions and further limiters without waiting. Then come
-- staged rows, Graphile Worker's job rows and in-flight rows, as in a pass.
create or replace function _pass_slots_on(
  p_limiter_ids bigint[], p_locked bigint[], p_now timestamptz, out passed_on jsonb, out leaves boolean
) language plpgsql set lock_timeout = '5ms' as $$
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_policy policies;
  v_partition_ids uuid[];
  v_limiter_ids bigint[];
  v_pass record;
  v_is_served boolean;
  v_is_timed boolean;
  v_left bigint[] := p_limiter_ids;
  v_timed int[] := '{}';
begin
  for v_policy in
    select p.* from policies p
    where p.id in (
        select l.policy_id from limiters l where l.id = any(p_limiter_ids))
      and p.enabled and p.paused_until <= v_now and p.admission_budget is null and p.breaker_failures is null
      and not p.fair_by_work and p.when_busy = 'wait'
      and p.ahead_limiter_id = any(p_locked)   -- with this lock nobody removes the policy meanwhile
      and not exists (select from arrivals a where a.policy = p.name)
      and cardinality(p_limiter_ids) <= 10   -- for many, one pass costs less
  loop
    v_is_served := false;
    begin
      v_partition_ids := array(
        select q.id from partitions q
        where q.policy_id = v_policy.id and q.blocked_on = any(p_limiter_ids)
          and q.stopped_until <= v_now and not q.probing
          and not exists (
            select from partitions w
            where w.blocked_on = any(q.limiter_ids) and w.id <> q.id)
          and not exists (
            select from staged_jobs s
            where s.partition_id = q.id and s.expires_at <= v_now)
          and coalesce(_next_eligible_at(v_policy.name, q.shard), 'infinity') > v_now
        for no key update of q skip locked);
      v_limiter_ids := _limiters_of(v_partition_ids);
      if not v_limiter_ids <@ p_locked then
        v_limiter_ids := array(
          select l.id from limiters l
          where l.id = any(v_limiter_ids) order by l.id for no key update skip locked);
        v_partition_ids := array(
          select q.id from partitions q
          where q.id = any(v_partition_ids) and q.limiter_ids <@ v_limiter_ids);
      end if;
      continue when v_partition_ids = '{}';
      v_now := coalesce(p_now, clock_timestamp());
      perform _promote(v_partition_ids, v_now);
      v_pass := _admit_locked(
        v_policy, _claimed(v_partition_ids),
        array(select l from limiters l where l.id = any(v_limiter_ids)), v_now, true, null);
      v_is_timed := exists (
        select from partitions q
        left join limiters l on l.id = q.blocked_on
        where q.id = any(v_partition_ids) and (q.eligible_at < 'infinity' or l.wake_at is not null))
        -- a job has expired since the look above: only a pass tells of it
        or exists (select from drops d where d.policy = v_policy.name);
      v_limiter_ids := _limiters_of(v_pass.looked_at);
      v_is_served := true;
    exception when others then
      null;   -- whatever stops a pass must stop no release: the next pass meets it again, and reports it
    end;
    -- here, because an error does not undo what is assigned
    if v_is_served then
      v_left := array(select unnest(v_left) except select unnest(v_limiter_ids));
      if v_is_timed then
        v_timed := v_timed || v_policy.id;
      end if;
      if v_pass.admitted > 0 then
        passed_on := coalesce(passed_on, '[]') || jsonb_build_object('policy', v_policy.name, 'jobs', v_pass.admitted);
      end if;
    end if;
  end loop;
  leaves := v_left <> '{}' or v_timed <> '{}';
  if not leaves then
    return;
  end if;
  perform set_config('lock_timeout', '250ms', true);   -- as _release: an error from here on would stop it
  insert into freed (policy_id, limiter_id)
  select l.policy_id, l.id from limiters l where l.id = any(v_left);
  perform _notify(p.name) from policies p
  where p.id = any(v_timed)
    or p.id in (select l.policy_id from limiters l where l.id = any(v_left));
end
$$;
