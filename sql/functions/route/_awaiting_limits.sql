-- Those partitions of these arrivals that have no limits and shard yet, although other arrivals bring some.
--
-- The danger: somebody reschedules or removes a job that is not routed yet. That arrival has no limits. If it is routed before
-- the job's own, it makes the partition, and the partition's jobs pass no gate. That of a changed context has limits but no
-- shard, and the partition would stay in the default one. The cure: they wait for the job's arrival.
create or replace function _awaiting_limits(p_policy text, p_ids bigint[]) returns uuid[]
language plpgsql stable as $$   -- planned as _arrivals_left
declare
  v_bare_ids uuid[] := array(
    select a.partition_id from arrivals a
    where a.policy = p_policy and a.id = any(p_ids)
    group by a.partition_id
    having not bool_or(a.limits is not null and a.shard is not null) and bool_or(a.pause is null and a.outcome is null));
begin
  v_bare_ids := array(
    select u.id from unnest(v_bare_ids) u (id)
    where (u.id in (
      select q.id from partitions q
      where q.id = any(v_bare_ids) and q.arrival_id > 0)) is not true);
  if v_bare_ids = '{}' then
    return '{}';
  end if;
  return array(
    select distinct a.partition_id from arrivals a
    where a.policy = p_policy and a.limits is not null and a.shard is not null
      and (a.partition_id in (select unnest(v_bare_ids))) is true);
end
$$;
