-- Admits the chosen jobs. If Graphile Worker refuses them together, it tries halves, down to the single job: what
-- passes is admitted, whatever the rest. A job that is refused alone is quarantined with the error, still staged, and is
-- tried again after a growing back-off.
--
-- A job may wait for another transaction that has just added a job of its key or made its queue, and has not committed. It
-- is quarantined as well, for a moment. The limiters are locked by now, so nobody waits for long: all together 50 ms, each
-- part 5 ms. A job without a key waits for its queue or its task, so the others of that queue or task are quarantined with
-- it.
--
-- After 400 refusals or 40 waits, jobs that were not tried stay as they are for the next pass. If no job passes, and
-- Graphile Worker's own schema fails, the error is raised: the jobs are not to blame.
create or replace function _add_what_passes(
  p_candidates candidate[], p_now timestamptz,
  out admissions admission[], out quarantined bigint[]
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_chosen bigint[];
  v_todo jsonb;
  v_from int;
  v_to int;
  v_locks boolean;
  v_refusals int := 0;
  v_waits int := 0;
  v_broken int := 0;
  v_state text;
  v_error text;
begin
  quarantined := '{}';
  begin
    admissions := _add_admitted(p_candidates, p_now);
    return;
  exception when others then
    if _concerns_all(sqlstate) then
      raise;
    end if;
  end;
  admissions := '{}';
  perform set_config('lock_timeout', '5ms', true);
  -- first all those together that cannot wait for anybody
  v_chosen := array(
    select s.id from staged_jobs s
    where s.id = any(array(select c.staged_id from unnest(p_candidates) c where c.chosen))
    order by s.job_key is not null or s.queue_name is not null or s.parked_job_id is not null, s.failures, s.queue_name, s.id);
  v_from := (
    select count(*) from staged_jobs s
    where s.id = any(v_chosen) and s.job_key is null and s.queue_name is null and s.parked_job_id is null);
  v_todo := case when v_from between 1 and cardinality(v_chosen) - 1
    then jsonb_build_array(jsonb_build_array(v_from + 1, cardinality(v_chosen)), jsonb_build_array(1, v_from))
    else jsonb_build_array(jsonb_build_array(1, cardinality(v_chosen))) end;
  while jsonb_array_length(v_todo) > 0 and v_refusals < 400 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      admissions := admissions || _add_admitted(
        array(select c from unnest(p_candidates) c
          where c.chosen and c.staged_id in (select unnest(v_chosen[v_from:v_to]) except select unnest(quarantined))),
        p_now);
    exception when others then
      v_locks := sqlstate = '55P03';
      v_refusals := v_refusals + 1;
      v_waits := v_waits + case when v_locks then 1 else 0 end;
      if _concerns_all(sqlstate) then
        raise;
      elsif v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      else
        v_broken := v_broken + case when left(sqlstate, 2) = any('{0A,25,3F,42,53,58,XX}') then 1 else 0 end;
        v_error := sqlerrm;
        v_state := sqlstate;
        quarantined := quarantined || _quarantine(
          v_chosen[v_from], v_chosen, sqlerrm, v_locks, p_now);
      end if;
    end;
  end loop;
  if v_broken >= 5 and admissions = '{}' and v_broken = cardinality(quarantined) then
    raise exception using errcode = v_state, message = v_error,
      detail = 'dispatch_policy: Graphile Worker refused every job of this admission; all stay staged.';
  end if;
  -- one that another session has locked was not quarantined: it is due still
  quarantined := array(select s.id from staged_jobs s where s.id = any(quarantined) and not s.due);
end
$$;
