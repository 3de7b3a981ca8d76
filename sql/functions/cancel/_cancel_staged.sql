-- Removes up to so many of the staged jobs after `p_after` that a cancel is for. Those go first that were staged first.
--
-- The danger: a pass has moved a job into Graphile Worker, and its transaction is still open. A look that passes by locked
-- rows finds the job in neither place. The cure: it waits for the row. The caller looks into Graphile Worker afterwards.
--
-- A job that somebody moved to another partition meanwhile stays.
--
--   removed   how many there were
--   is_full   there may be more than `p_max`
--   last_id   then it is the last that this looked at
create or replace function _cancel_staged(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int, p_after bigint,
  out removed int, out is_full boolean, out last_id bigint
) language plpgsql volatile
set plan_cache_mode = force_custom_plan as $$   -- as remove
declare
  v_ids bigint[] := array(
    select r.id from _removable(p_ids, null, p_policy, p_partition) r
    where r.id > p_after order by r.id limit p_max);
begin
  removed := 0;
  is_full := cardinality(v_ids) = p_max;
  last_id := v_ids[p_max];
  if v_ids = '{}' then
    return;
  end if;
  v_ids := array(
    select s.id from staged_jobs s where s.id = any(v_ids) order by s.job_key, s.id for update);
  v_ids := array(
    select r.id from _removable(p_ids, null, p_policy, p_partition) r where r.id = any(v_ids));
  removed := _remove_staged(v_ids, p_by, p_reason);
end
$$;
