-- Locks up to `p_claim` partitions of the shard (of every shard, when null) that are eligible, longest first; ties go to the least recently visited.
-- `p_now` must be a parameter: compared with clock_timestamp() the index is not used (10.4 ms instead of 0.02).
create or replace function :DISPATCH_POLICY_SCHEMA._claim(p_policy_id int, p_shard text, p_claim int, p_now timestamptz)
returns uuid[] language plpgsql as $$
declare
  v_ids uuid[];
begin
  select array_agg(c.id) into v_ids
  from unnest(case when p_shard is null then :DISPATCH_POLICY_SCHEMA._shards(p_policy_id) else array[p_shard] end) s (shard)
  cross join lateral (
    select p.id from :DISPATCH_POLICY_SCHEMA._private_partitions p
    where p.policy_id = p_policy_id and p.shard = s.shard and p.eligible_at < 'infinity' and p.eligible_at <= p_now
    order by p.eligible_at, p.visited limit p_claim
    for no key update skip locked
  ) c;
  return v_ids;
end
$$;
