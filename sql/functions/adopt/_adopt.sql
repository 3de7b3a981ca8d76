-- One step of adoption: moves at most p_limit jobs that wait in Graphile Worker for a task into staging. The caller has the
-- turn `adopt`.
--
--   matched   how many jobs wait after p_after, at most p_limit
--   changed   how many of them were adopted. The others were locked, changed meanwhile, or their payload has no key
--   last_id   the last of them, from which the next step goes on; null: there are none
--
-- Graphile Worker's functions wait for a row that another session has locked. So all together wait 50 ms at most, then
-- each half 5 ms, 40 times at most. Otherwise the other jobs would stay locked for long.
create or replace function _adopt(
  p_policy policies, p_task text, p_after bigint, p_limit int,
  out matched int, out changed int, out last_id bigint
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_jobs waiting_job[] :=
    _waiting_jobs(p_policy, p_task, p_after, p_limit);
  v_todo jsonb := jsonb_build_array(jsonb_build_array(1, cardinality(v_jobs)));
  v_from int;
  v_to int;
  v_part record;
  v_unkeyed bigint[] := '{}';
  v_waits int := 0;
begin
  matched := cardinality(v_jobs);
  changed := 0;
  last_id := v_jobs[matched].id;
  while matched > 0 and jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      v_part := _adopt_jobs(p_policy, p_task, array(
        select w from unnest(v_jobs[v_from:v_to]) w where w.id <> all(v_unkeyed)));
      if v_part.unkeyed <> '{}' then
        raise exception using errcode = 'DPOUT';
      end if;
      changed := changed + v_part.moved;
    exception
      when sqlstate 'DPOUT' then   -- the others are tried again without these
        v_unkeyed := v_unkeyed || v_part.unkeyed;
        v_todo := v_todo || jsonb_build_array(jsonb_build_array(v_from, v_to));
      when lock_not_available or deadlock_detected then
        perform set_config('lock_timeout', '5ms', true);
        v_waits := v_waits + 1;
        if v_from < v_to then
          v_todo := v_todo || _halves(v_from, v_to);
        end if;
    end;
  end loop;
  perform _notify((p_policy).name) where changed > 0;
end
$$;
