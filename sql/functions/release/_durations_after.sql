-- How long a policy's tasks run, after these jobs ended: a moving mean for each task, of about the last fifty jobs. Failed
-- jobs change nothing: while a partner is away, the jobs of a long task may fail at once.
create or replace function _durations_after(
  p_policy_id int, p_durations task_duration[],
  p_jobs finished_job[]
) returns task_duration[] language plpgsql stable as $$   -- planned as _free_slots
begin
  return array(
    select _duration_after(t.task_identifier, d.seconds, e.seconds, e.jobs)
    from policy_tasks t
    left join unnest(p_durations) d on d.task = t.task_identifier
    left join (
      select j.task, avg(j.duration_ms) / 1000 as seconds, count(*) as jobs
      from unnest(p_jobs) j where j.ok and j.duration_ms >= 0 group by j.task
    ) e on e.task = t.task_identifier
    where t.policy_id = p_policy_id and coalesce(d.seconds, e.seconds) is not null
    order by t.task_identifier);
end
$$;

-- One of them, after so many jobs ended that took so many seconds on average. It is an expression, so that PostgreSQL inlines it.
create or replace function _duration_after(task text, before float8, mean float8, jobs bigint)
returns task_duration language sql immutable as $$
  select row(task, coalesce(before + (mean - before) * (1 - power(0.98, jobs)), before, mean))::task_duration;
$$;
