-- Takes in a page of limits that were worked out again from stored contexts. They are appended as arrivals without work, and
-- the router applies them like any other. A partition that has got other limits since, or is about to, is left out: its own
-- job has brought newer ones. Returns false, and does nothing, if another process goes on from this place, or
-- if another definition is in force by now.
--
-- The danger: during a deploy, processes of the version before add jobs all the time. A partition that is left out for one of
-- those would keep its old limits until a process of this version adds a job. So it is not left out. If that job has another
-- context, the partition gets it with the next job that a process of this version adds.
--
--   p_after   the partition behind which the page begins; null: the first page
--   p_last    the last one of the page; null: the page is empty, and all is done
create or replace function _resolve_again(
  p_policy text, p_hash text, p_after uuid, p_last uuid, p_partitions json
) returns boolean language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  perform from resolutions r
  where r.policy = p_policy and r.definition_hash = p_hash and r.after is not distinct from p_after for update;
  if not found then
    return false;
  elsif p_last is null then
    delete from resolutions r where r.policy = p_policy;
  else
    update resolutions r set after = p_last where r.policy = p_policy;
  end if;
  insert into arrivals (policy, partition_id, key, version, context, weight, limits)
  select p_policy, _partition_id(p_policy, k.value ->> 'key'), k.value ->> 'key', p.generation,
    (k.value -> 'context')::jsonb, (k.value ->> 'weight')::float8, (k.value -> 'limits')::jsonb
  from json_array_elements(p_partitions) k
  cross join policies p
  where p.name = p_policy and not exists (
      select from partitions q
      where q.id = _partition_id(p_policy, k.value ->> 'key')
        and q.version >= p.generation and q.arrival_id <> (k.value ->> 'arrivalId')::bigint)
    and _partition_id(p_policy, k.value ->> 'key') not in (
      select a.partition_id from arrivals a
      where a.policy = p_policy and a.version >= p.generation and a.limits is not null);
  return true;
end
$$;
