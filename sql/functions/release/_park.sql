-- Parks these jobs, and returns those it has parked. It leaves jobs that another transaction has locked, and jobs that were
-- replaced under their key since they were read in this revision.
--
-- Limiters are locked by now, so it tries in halves, and waits some 40 times at most. The caller draws the order by lot: if
-- the same 60 locked jobs came first each time, the others would never be parked.
create or replace function _park(p_job_ids bigint[], p_revisions int[])
returns bigint[] language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_parked bigint[] := '{}';
  v_todo jsonb := jsonb_build_array(jsonb_build_array(1, cardinality(p_job_ids)));
  v_from int;
  v_to int;
  v_ids bigint[];
  v_is_replaced boolean;
  v_waits int := 0;
begin
  while cardinality(p_job_ids) > 0 and jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      select coalesce(array_agg(j.id), '{}'), bool_or(j.revision <> u.revision) into v_ids, v_is_replaced
      from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        p_job_ids[v_from:v_to], run_at => 'infinity', priority => 32767) j
      join unnest(p_job_ids, p_revisions) u (id, revision) on u.id = j.id;
      if v_is_replaced then
        raise lock_not_available;
      end if;
      v_parked := v_parked || v_ids;
    exception when lock_not_available then
      perform set_config('lock_timeout', '5ms', true);
      v_waits := v_waits + 1;
      if v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      end if;
    end;
  end loop;
  return v_parked;
end
$$;
