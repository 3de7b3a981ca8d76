-- Wakes all partitions of a policy that is switched off: it has no limits to wait for.
--
-- A partition that is locked waits until a later step. Until then its limiter keeps what would wake it, because the policy
-- may be switched on before.
create or replace function _wake_all(
  p_policy policies, p_max int
) returns int language plpgsql as $$
declare
  v_woken int;
  v_limiter_ids bigint[];
  v_shards text[];
begin
  with woken as (
    update partitions p set denied_until = '-infinity', blocked_on = null, denied_reason = null
    where p.id = any(array(
      select q.id from partitions q
      where q.policy_id = (p_policy).id and q.denied_until > '-infinity' and q.due_at < 'infinity'
      order by q.id limit p_max for no key update skip locked))
    returning p.shard
  )
  select count(*), array_agg(distinct w.shard) into v_woken, v_shards from woken w;
  with idle as materialized (   -- one look at the index for each, in the deletion's snapshot
    select d.id from (
      select distinct f.limiter_id as id from freed f where f.policy_id = (p_policy).id
    ) d
    where (select true from partitions q where q.blocked_on = d.id limit 1) is null
  )
  delete from freed f
  where f.policy_id = (p_policy).id and (f.limiter_id in (select i.id from idle i)) is true;
  -- locked before it is looked at who waits: a pass may add a waiter and set wake_at
  v_limiter_ids := array(
    select x.id from limiters x
    where x.policy_id = (p_policy).id and x.wake_at is not null for no key update skip locked);
  update limiters l set wake_at = null
  where l.id = any(v_limiter_ids) and (
    select true from partitions q where q.blocked_on = l.id limit 1) is null;
  if v_shards is not null then
    perform _notify_shards((p_policy).name, v_shards);
  end if;
  return v_woken;
end
$$;
