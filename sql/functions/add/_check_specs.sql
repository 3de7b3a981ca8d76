-- Raises for a job that Graphile Worker would refuse, because such a job must not be staged. The bounds are Graphile
-- Worker's own.
create or replace function _check_specs(p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[])
returns void language plpgsql as $$
declare
  v_wrong record;
begin
  select s.* into v_wrong from unnest(p_specs) s
  where length(s.queue_name) > 128 or length(s.job_key) not between 1 and 512 or s.max_attempts < 1 limit 1;
  if found then
    raise exception using errcode = 'DPARG', message = 'dispatch_policy: a job of ' || v_wrong.identifier || ': ' || case
      when v_wrong.max_attempts < 1 then format('max_attempts is %s, expected 1 to 32767', v_wrong.max_attempts)
      when length(v_wrong.queue_name) > 128
        then format('queue_name has %s characters, expected at most 128', length(v_wrong.queue_name))
      else format('job_key has %s characters, expected 1 to 512', length(v_wrong.job_key)) end;
  end if;
end
$$;
