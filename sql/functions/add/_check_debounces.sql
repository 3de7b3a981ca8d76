-- Raises unless each job that is to be debounced has a task with a policy and a job key. Nothing else may say when it is due.
create or replace function _check_debounces(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_debounces json[], p_mode text
) returns void language plpgsql as $$
declare
  v_job record;
begin
  for v_job in
    select s.identifier, s.job_key, s.run_at from rows from (unnest(p_specs), unnest(p_debounces))
      s (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, debounce)
    where s.debounce is not null
  loop
    if v_job.job_key is null then
      raise exception 'dispatch_policy: a job of %: job_key is null, expected one: debounce puts the adds of a key together. Give a job_key, or no debounce',
        v_job.identifier using errcode = 'DPARG';
    elsif v_job.run_at is not null then
      raise exception 'dispatch_policy: a job of %: run_at is %, expected none: debounce says when the job is due. Leave one of the two out',
        v_job.identifier, v_job.run_at using errcode = 'DPARG';
    elsif p_mode <> 'replace' then
      raise exception 'dispatch_policy: a job of %: job_key_mode is %, expected replace: debounce moves the job of its key. Leave one of the two out',
        v_job.identifier, p_mode using errcode = 'DPARG';
    elsif not exists (
      select from policy_tasks t where t.task_identifier = v_job.identifier) then
      perform _refuse_debounce(v_job.identifier);
    end if;
  end loop;
end
$$;
