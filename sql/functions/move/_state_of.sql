-- What a partition of this policy gets with a job that brings no context of its own: an arrival without work. All columns
-- are null if nothing is known of the partition, and the policy's numbers are no constants. Its row tells, or what has
-- arrived for it.
--
-- The danger: a partition that a pause has made has no limits, and a job would pass no gate. So limits are known only if a
-- job has brought them. A collector may delete the partition meanwhile, so the arrival brings its limits along. They count
-- only for a new partition: this version makes the arrival the oldest, as in _retry.
create or replace function _state_of(p_policy policies, p_key text)
returns arrivals language plpgsql stable as $$
declare
  v_id uuid := _partition_id((p_policy).name, p_key);
  v_definition jsonb := (p_policy).definition;
  v_state arrivals;
begin
  if (v_definition ->> 'resolvesInSql')::boolean then
    v_state.version := (p_policy).generation;
    v_state.shard := v_definition ->> 'shard';
    v_state.weight := (v_definition ->> 'weight')::float8;
    v_state.limits := _constant_limits(v_definition);
  else
    select q.shard, q.context, q.weight, q.limits
    into v_state.shard, v_state.context, v_state.weight, v_state.limits
    from partitions q where q.id = v_id and q.arrival_id > 0;
    if not found then
      select a.shard, a.context, a.weight, a.limits
      into v_state.shard, v_state.context, v_state.weight, v_state.limits
      from arrivals a
      where a.policy = (p_policy).name and a.partition_id = v_id and a.limits is not null
      order by a.version desc, a.id desc limit 1;
      if not found then
        return null;
      end if;
    end if;
    v_state.version := -2147483648;
  end if;
  v_state.policy := (p_policy).name;
  v_state.partition_id := v_id;
  v_state.key := p_key;
  return v_state;
end
$$;
