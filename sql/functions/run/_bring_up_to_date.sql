-- Gives partition and limiters the numbers of this job's context, as the router would. It routes whatever else is staged
-- for the partition with it, such as a pause from before the partition existed.
create or replace function _bring_up_to_date(
  p_policy policies, p_batch json, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_state record;
  v_id uuid;
  v_arrivals arrivals[];
begin
  select * into v_state from json_to_record(p_batch #> '{partitions,0}')
    as k (key text, shard text, context jsonb, weight float8, limits jsonb);
  v_id := _partition_id((p_policy).name, v_state.key);
  if exists (
    select from partitions p where p.id = v_id and p.limits = v_state.limits
      -- limits by context read the context
      and (p.context = v_state.context or not exists (
        select from overrides o
        where o.policy_id = (p_policy).id and o.context_pair is not null))
  ) then
    return;
  end if;
  perform _lock_turn((p_policy).id, 'route');
  insert into arrivals (
    policy, partition_id, key, shard, version, context, weight, limits)
  values ((p_policy).name, v_id, v_state.key, v_state.shard, 
    _generation_of(p_policy, (p_batch ->> 'version')::int), v_state.context,
    v_state.weight, v_state.limits);
  perform from partitions p where p.id = v_id for no key update;
  with consumed as (
    delete from arrivals a
    where a.policy = (p_policy).name and a.partition_id = v_id returning a
  )
  select array_agg(c.a) into v_arrivals from consumed c;
  perform _apply_arrivals(
    p_policy, v_arrivals, _lock_known(p_policy, array[v_id], p_now), p_now);
end
$$;
