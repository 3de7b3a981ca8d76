-- Leaves a freed row for each limiter of a gate whose override starts, ends or is taken back, if a partition waits for it.
--
-- A tick may go by the numbers before, and make a partition wait that nobody sees yet. The tick has the limiter locked. So
-- this locks a limiter before it looks who waits, and tries again on later passes if it cannot lock it.
create or replace function :DISPATCH_POLICY_SCHEMA._announce_overrides(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_ids bigint[] := array(
    select o.id from :DISPATCH_POLICY_SCHEMA._private_overrides o
    where o.policy_id = (p_policy).id and (o.announce_at <= p_now or o.to_announce <> '{}')
    for update skip locked);
  v_due_ids bigint[];
  v_late_ids bigint[];
  v_locked_ids bigint[];
begin
  v_due_ids := array(
    select distinct l.id from :DISPATCH_POLICY_SCHEMA._private_overrides o
    join :DISPATCH_POLICY_SCHEMA._private_limiters l
      on l.policy_id = o.policy_id and l.gate = o.gate and (o.scope_key is null or l.scope_key = o.scope_key)
    where o.id = any(v_ids) and o.announce_at <= p_now);
  v_late_ids := array(
    select u.id from :DISPATCH_POLICY_SCHEMA._private_overrides o cross join unnest(o.to_announce) u (id)
    where o.id = any(v_ids));
  v_locked_ids := :DISPATCH_POLICY_SCHEMA._locked_limiters(v_due_ids || v_late_ids);
  insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
  select (p_policy).id, u.id from (
    select unnest(v_due_ids) union (select unnest(v_late_ids) except select unnest(v_locked_ids))
  ) u (id)
  where exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = u.id);
  -- If a gate is halted now, or not any more, its waiters have another reason: the first thousand show it at once.
  with reason as materialized (
    select l.id, :DISPATCH_POLICY_SCHEMA._lack_reason(l.kind, l.tokens, l.rate, l.cap) as now,
      :DISPATCH_POLICY_SCHEMA._lack_reason(
        l.kind, l.tokens, (l.rate <= 0)::int, (l.cap is not distinct from 0)::int) as before
    from :DISPATCH_POLICY_SCHEMA._limiters_now((p_policy).id, array(
      select u.id from unnest(v_due_ids) u (id)
      where exists (select from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = u.id)), p_now, true) l
  ),
  waiter as materialized (
    select q.id, r.now from reason r
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.blocked_on = r.id
    where q.denied_reason = r.before limit 1000 for no key update of q skip locked
  )
  update :DISPATCH_POLICY_SCHEMA._private_partitions q set denied_reason = w.now from waiter w where q.id = w.id;
  update :DISPATCH_POLICY_SCHEMA._private_overrides o set
    to_announce = array(
      select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
      where l.id = any(v_locked_ids) and (l.id = any(o.to_announce) or (o.announce_at <= p_now
        and l.policy_id = o.policy_id and l.gate = o.gate and (o.scope_key is null or l.scope_key = o.scope_key)))),
    announce_at = case when o.announce_at > p_now then o.announce_at when o.until_at > p_now then o.until_at
      else 'infinity' end
  where o.id = any(v_ids);
end
$$;
