-- Records from when partitions wait for another reason than before. Called once the pass has decided about them, under their
-- locks.
--
-- If several limiters have no room, the pass names the one that has it last. That may be the ahead bound, which has room in
-- a moment, while the partition sleeps until its throttle has tokens. So the limiter counts that it waits for. The name of
-- its gate follows the reason, as in throttle_empty:account. A policy may have several gates of a kind.
--
--   p_is_pass   a pass claims no partition that is stopped. So a stop of these is over, also if nobody has recorded its end
create or replace function :DISPATCH_POLICY_SCHEMA._record_reasons(
  p_policy_id int, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean
) returns void language plpgsql volatile as $$
begin
  if p_is_pass then
    update :DISPATCH_POLICY_SCHEMA._private_stop_times s set until_at = greatest(s.from_at, p_now)
    where s.policy_id = p_policy_id and s.until_at > p_now and s.partition_id = any(p_partition_ids);
  end if;
  insert into :DISPATCH_POLICY_SCHEMA._private_reasons as r (partition_id, from_at, policy_id, reason, waited)
  select q.id, a.at, p_policy_id, k.reason, :DISPATCH_POLICY_SCHEMA._reasons_until(q.id, a.at)
  from :DISPATCH_POLICY_SCHEMA._private_partitions q
  left join lateral (
    select x.from_at, x.reason from :DISPATCH_POLICY_SCHEMA._private_reasons x
    where x.partition_id = q.id order by x.from_at desc limit 1) l on true
  left join :DISPATCH_POLICY_SCHEMA._private_limiters b on b.id = q.blocked_on
  cross join lateral (
    select case when b.id is null or q.denied_reason in ('rate_zero', 'max_zero') then q.denied_reason
      else :DISPATCH_POLICY_SCHEMA._lack_reason(b.kind, case when b.by_tokens then 0 end, 1, 1) end
      || coalesce(case when b.kind <> 'ahead' then ':' || b.gate end, '') as reason
  ) k
  cross join lateral (select greatest(p_now, l.from_at) as at) a   -- a clock may go back
  where q.id = any(p_partition_ids) and l.reason is distinct from k.reason
  on conflict (partition_id, from_at) do update set reason = excluded.reason;
end
$$;
