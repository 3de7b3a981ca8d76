-- Keeps a policy's backlog within its bound, in the producer's transaction: returns the jobs that may be staged. It drops the
-- others or older ones, or raises.
--
-- Pending jobs are those that committed transactions and this one have staged. So producers that stage at the same time may
-- go past the bound together, by what they have not committed. In a strict policy they wait for each other instead.
--
-- A job whose key is staged already takes that one's place. With unsafe_dedupe, a job whose key is anywhere changes nothing.
-- Retries and jobs copied do not count as new: no producer could add them again. A job whose partition is not known yet
-- counts only for the bound over all.
create or replace function _make_room(
  p_policy policies, p_partitions json, p_jobs json, p_mode text
) returns json language plpgsql as $$
declare
  v_name text := (p_policy).name;
  v_pending_in_all int;
  v_room record;
  v_excess int;
  v_gone int := 0;
  v_full record;
  v_keys text[] := array(
    select j.value ->> 'jobKey' from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null);
begin
  if (p_policy).strict_pending then
    perform _lock_pending(p_policy, p_partitions);
  end if;
  if (p_policy).max_pending_in_all is not null then
    v_pending_in_all := (
      select coalesce(sum(d.jobs), 0) from pending d where d.policy = v_name);
  end if;
  v_room := _fit(p_policy, p_partitions, p_jobs, p_mode, v_pending_in_all);
  if v_room.full_ones is not null and (p_policy).when_full = 'reject' then
    perform _raise_full(p_policy, v_room.full_ones, v_pending_in_all);
  end if;
  v_excess := v_pending_in_all + v_room.fresh - (p_policy).max_pending_in_all;
  for v_full in select t.* from jsonb_to_recordset(v_room.full_ones) t (id uuid, key text, dropped int, excess int, added int)
  loop
    v_gone := v_gone
      + _drop_oldest(v_name, v_full.id, v_full.excess, v_keys, v_full.added);
    if v_full.dropped > 0 then
      insert into drops (policy, partition_id, key, reason, jobs)
      values (v_name, v_full.id, v_full.key, 'max_pending', v_full.dropped);
    end if;
  end loop;
  v_excess := v_excess - v_gone;
  if (p_policy).when_full = 'drop_oldest' and v_excess > 0 then
    perform _drop_oldest(
      v_name, null, least(v_excess, v_room.fresh + 1000), v_keys, greatest(v_room.fresh - v_gone, 0));
  end if;
  if v_room.full_ones is not null then
    perform _notify(v_name);
  end if;
  if p_mode <> 'unsafe_dedupe' then   -- _stage_deduped knows which of these are staged
    perform _count_pending(v_name, v_room.fresh);
  end if;
  return coalesce(v_room.kept, '[]');
end
$$;
