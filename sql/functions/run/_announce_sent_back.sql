-- Tells the router of a job that is staged again, as its partition's newest definition stands.
create or replace function :DISPATCH_POLICY_SCHEMA._announce_sent_back(
  p_policy text, p_slot :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs, p_priority smallint, p_run_at timestamptz
) returns void language plpgsql as $$
begin
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals overriding user value
  select a.* from :DISPATCH_POLICY_SCHEMA._private_partitions q
  cross join lateral :DISPATCH_POLICY_SCHEMA._work_arrival(
    p_policy, q.id, q.key, q.shard, 0, null, null, null, p_run_at, (p_slot).cost, true, p_priority, p_run_at,
    (p_slot).staged_id) a
  where q.id = (p_slot).partition_id;
  perform :DISPATCH_POLICY_SCHEMA._count_pending(p_policy, 1);
  perform :DISPATCH_POLICY_SCHEMA._notify(p_policy);
end
$$;
