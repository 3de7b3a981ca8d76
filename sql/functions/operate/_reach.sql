-- What a verb concerns: known partitions of a policy, with the jobs that wait in staging and those in flight. Null: all of
-- them. It is for dry runs, so it locks nothing. Jobs that the router has not counted yet are counted here.
create or replace function _reach(
  p_policy text, p_partition_ids uuid[], out partitions int, out staged int, out in_flight int
) language plpgsql stable as $$
begin
  if p_partition_ids is null then
    select v.partitions, v.staged, v.in_flight into partitions, staged, in_flight
    from :DISPATCH_POLICY_SCHEMA.policies v where v.policy = p_policy;
    return;
  end if;
  with wanted as materialized (
    select distinct u.id from unnest(p_partition_ids) u (id)
  ),
  found as materialized (
    select q.id, q.staged as jobs, q.arrival_id > 0 as is_known from partitions q
    where q.id in (select w.id from wanted w)
    union all
    select a.partition_id, a.jobs, a.limits is not null from arrivals a
    where a.policy = p_policy and a.partition_id in (select w.id from wanted w)
  )
  select count(distinct f.id) filter (where f.is_known), coalesce(sum(f.jobs), 0), (
      select count(*) from in_flight_jobs i
      where i.partition_id in (select w.id from wanted w))
  into partitions, staged, in_flight from found f;
end
$$;
