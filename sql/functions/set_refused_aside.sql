-- Finds the jobs Graphile Worker refuses, by halving the chosen ones and trying each half in a transaction that is
-- undone, and sets them aside: still staged, with the error, tried again after a growing back-off. When every job
-- tried is refused it is Graphile Worker that is broken, not the jobs: nothing is set aside and the error is raised.
create or replace function :DISPATCH_POLICY_SCHEMA._set_refused_aside(
  p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[], p_now timestamptz, p_sqlstate text, p_error text
) returns bigint[] language plpgsql as $$
declare
  v_chosen bigint[] := array(select c.staged_id from unnest(p_candidates) c where c.chosen order by c.staged_id);
  v_todo jsonb := jsonb_build_array(jsonb_build_array(1, cardinality(v_chosen)));
  v_from int;
  v_to int;
  v_error text;
  v_refused bigint[] := '{}';
  v_errors text[] := '{}';
  v_any_passed boolean := cardinality(v_chosen) = 1;
  v_tries int := 0;
begin
  while jsonb_array_length(v_todo) > 0 and v_tries < 200 and (v_any_passed or cardinality(v_refused) < 5) loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    v_tries := v_tries + 1;
    v_error := :DISPATCH_POLICY_SCHEMA._try_hand_over(p_candidates, v_chosen[v_from:v_to], p_now);
    if v_error is null then
      v_any_passed := true;
    elsif v_from = v_to then
      v_refused := v_refused || v_chosen[v_from];
      v_errors := v_errors || v_error;
    else
      v_todo := v_todo || jsonb_build_array(
        jsonb_build_array(v_from, (v_from + v_to) / 2), jsonb_build_array((v_from + v_to) / 2 + 1, v_to));
    end if;
  end loop;
  if v_refused = '{}' or not v_any_passed then
    raise exception using errcode = p_sqlstate, message = p_error,
      detail = 'dispatch_policy: Graphile Worker refused every job of this admission; all stay staged.';
  end if;
  -- what was not tried waits with the refused: half an admission must not fail again as a whole
  v_refused := v_refused || coalesce((
    select array_agg(v_chosen[i]) from jsonb_array_elements(v_todo) r,
      generate_series((r ->> 0)::int, (r ->> 1)::int) i), '{}');
  update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set
    due = false, failures = least(s.failures + 1, 30000),
    retry_at = p_now + make_interval(secs => least(power(2, least(s.failures, 12)), 3600)),
    error = coalesce(v_errors[array_position(v_refused, s.id)], 'not tried: too many jobs beside it were refused')
  where s.id = any(v_refused);
  return v_refused;
end
$$;

-- What Graphile Worker says to these jobs: null when it takes them. Nothing is kept.
create or replace function :DISPATCH_POLICY_SCHEMA._try_hand_over(
  p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[], p_staged_ids bigint[], p_now timestamptz
) returns text language plpgsql as $$
begin
  perform :DISPATCH_POLICY_SCHEMA._hand_over(
    array(select c from unnest(p_candidates) c where c.staged_id = any(p_staged_ids)), p_now);
  raise exception using errcode = 'DPUND', message = 'undo';
exception
  when sqlstate 'DPUND' then return null;
  when lock_not_available or query_canceled or deadlock_detected or admin_shutdown then raise;
  when others then return sqlerrm;
end
$$;
