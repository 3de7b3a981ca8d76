-- How many worker slots of a policy are free for a job of a long task, and which tasks are short. No row: nobody asks, because
-- the policy has one task, or is not ahead by a time. If pools differ in the policy's tasks, nobody knows which of their slots
-- the jobs in flight wait for: no row either.
create or replace function _slots_for_long_jobs(
  p_policy policies, p_now timestamptz, out short_tasks text[], out free int
) returns setof record language plpgsql stable rows 1 as $$
begin
  if (p_policy).ahead_seconds is null
    or (select count(*) from policy_tasks t where t.policy_id = (p_policy).id) < 2 then
    return;
  end if;
  return query
  select array(select d.task from unnest(l.durations) d where d.seconds <= (p_policy).ahead_seconds),
    s.assumed - l.in_flight - cardinality(_still_ending(l.ending))
      + case when l.elsewhere_until > p_now
        then _waiting_elsewhere(l.policy_id, (p_policy).ahead_seconds + 1, p_now) else 0 end
  from limiters l
  cross join lateral _worker_slots(l.policy_id) s
  where l.id = (p_policy).ahead_limiter_id and s.alike;
end
$$;
