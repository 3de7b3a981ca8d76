-- The shards of a policy that somebody ticks: those with a lease, and the caller's own (`p_shard`). Null: all of them,
-- because the caller ticks all, or because the policy has one shard.
create or replace function _ticked_shards(
  p_policy policies, p_shard text
) returns text[] language plpgsql volatile as $$
begin
  if p_shard is null or (p_policy).definition ->> 'shard' is not null then
    return null;
  end if;
  return p_shard || array(
    select e.shard from leases e
    where e.policy = (p_policy).name and e.expires_at > clock_timestamp());
end
$$;
