-- Notes which of these released jobs have completed, if they are the last ones of their keys (`uniqueFor`). It appends, and
-- waits for nobody: a producer may have the key locked. If that one commits a newer job, the row means nothing, and a sweep
-- deletes it. If it rolls back, the row counts.
--
-- A job may have lost its slot while it ran, by `slotTimeout` or `releaseSlots`. Then its release names it by its staged id. If
-- it waits for a retry, or another attempt or another job has a slot in its row, that one's end counts.
--
-- A job whose end nobody saw has completed if Graphile Worker does not have it any more. One that fails for good, or is
-- cancelled, stays there.
create or replace function _remember_ends(
  p_gone in_flight_jobs[], p_jobs finished_job[],
  p_now timestamptz
) returns void language plpgsql volatile as $$   -- planned as _free_slots
begin
  insert into unique_ends as e (staged_id, policy_id, ended_at)
  select distinct g.staged_id, g.policy_id, p_now
  from unnest(p_gone) g
  join unnest(p_jobs) f on f.job = g.job_id
    and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
  join policies p on p.id = g.policy_id and p.unique_for is not null
  cross join lateral (   -- one look at the index for each, however many keys there are
    select from unique_keys x
    where x.staged_id = g.staged_id and x.policy_id = g.policy_id limit 1) k
  where f.ok or (f.ok is null
    and (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = g.job_id limit 1) is null)
  union
  select k.staged_id, k.policy_id, p_now
  from unnest(p_jobs) f
  cross join lateral (
    select x.staged_id, x.policy_id from unique_keys x
    where x.staged_id = f.staged_id limit 1) k
  join policies p on p.id = k.policy_id and p.unique_for is not null
  where f.ok and f.staged_id is not null and (f.job in (select g.job_id from unnest(p_gone) g)) is not true
    and (select true from in_flight_jobs i where i.job_id = f.job limit 1) is null
    and (select true from staged_jobs s where s.id = f.staged_id limit 1) is null
  on conflict (staged_id) do update set ended_at = excluded.ended_at;
end
$$;
