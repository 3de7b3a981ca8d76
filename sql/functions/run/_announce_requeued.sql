-- Tells the router of a job that is staged again, as its partition's newest definition stands.
create or replace function _announce_requeued(
  p_policy text, p_slot in_flight_jobs, p_priority smallint, p_run_at timestamptz
) returns void language plpgsql as $$
begin
  insert into arrivals overriding user value
  select a.* from partitions q
  cross join lateral _work_arrival(
    p_policy, q.id, q.key, q.shard, 0, null, null, null, p_run_at, (p_slot).cost, true, p_priority, p_run_at,
    (p_slot).staged_id) a
  where q.id = (p_slot).partition_id;
  perform _count_pending(p_policy, 1);
  perform _notify(p_policy);
end
$$;
