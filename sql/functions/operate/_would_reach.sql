-- The dry run of a verb for a partition, a policy or all policies: how many policies or partitions match, and what they have.
create or replace function _would_reach(
  p_policy text, p_partition text, p_all boolean, out matched int, out partitions int, out staged int, out in_flight int
) language plpgsql as $$
begin
  if p_partition is not null then
    perform _policy(p_policy);
    select r.partitions, r.partitions, r.staged, r.in_flight into matched, partitions, staged, in_flight
    from _reach(
      p_policy, array[_partition_id(p_policy, p_partition)]) r;
  else
    select count(*), coalesce(sum(r.partitions), 0), coalesce(sum(r.staged), 0), coalesce(sum(r.in_flight), 0)
    into matched, partitions, staged, in_flight
    from _targets(p_policy, p_all) t
    cross join lateral _reach(t.name, null) r;
  end if;
end
$$;
