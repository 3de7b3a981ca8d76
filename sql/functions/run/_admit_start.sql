-- Whether a job gets a slot at its start: that of the job it replaced, one past the gates, or one by them. It waits for
-- locked rows for half a second at most.
create or replace function _admit_start(
  p_policy policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_batch json, p_unmanaged text, p_now timestamptz
) returns boolean language plpgsql
set lock_timeout = '500ms' as $$
declare
  v_cost float8 := coalesce((p_batch #>> '{jobs,0,cost}')::float8, 1);
begin
  perform _bring_up_to_date(p_policy, p_batch, coalesce(p_now, clock_timestamp()));
  if _inherit_slot(
    p_policy, p_key, p_job_id, p_staged_id, p_revision, coalesce(p_now, clock_timestamp())) then
    return true;
  elsif p_unmanaged = 'run' then
    perform _occupy_slot((p_policy).name, p_key, p_job_id, p_staged_id, p_revision, v_cost);
    return true;
  end if;
  return _admit_on_the_spot(
    p_policy, p_key, p_job_id, p_staged_id, p_revision, v_cost, p_now);
end
$$;
