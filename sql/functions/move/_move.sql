-- Moves these staged jobs to another partition or policy. The caller has locked their partition, and then them. Returns how
-- many left the partition.
--
-- Within a policy they get the partition at once if its limits are known (_state_of). Limits that are worked out from their
-- payloads would be those of the partition that they leave. If nothing is known of the new partition, there is no other way:
-- a process that has the policy works them out.
create or replace function _move(
  p_policy policies, p_into policies, p_into_key text,
  p_ids bigint[]
) returns int language plpgsql volatile as $$
declare
  v_state arrivals;
  v_keyed bigint[];
  v_changed int;
begin
  if (p_into).id = (p_policy).id then
    v_state := _state_of(p_policy, p_into_key);
  end if;
  if v_state.key is null then
    v_changed := _move_to_policy('move', p_into, p_into_key, p_ids);
    perform _count_pending((p_policy).name, -v_changed);
    return v_changed;
  end if;
  update keyless_jobs k set partition_key = p_into_key where k.staged_id = any(p_ids);
  v_keyed := array(
    select s.id from staged_jobs s where s.id = any(p_ids) and s.partition_id is not null);
  perform _move_to_partition(v_state, v_keyed) where v_keyed <> '{}';
  perform _notify((p_policy).name);
  return cardinality(p_ids);
end
$$;
