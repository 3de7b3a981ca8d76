-- Records from when partitions wait for another reason than before. Called once the pass has decided about them, under their
-- locks.
--
-- The name of the gate follows the reason, as in throttle_empty:account. A policy may have several gates of a kind.
--
--   p_is_pass   a pass claims no partition that is stopped. So a stop of these is over, also if nobody has recorded its end
create or replace function _record_reasons(
  p_policy_id int, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean
) returns void language plpgsql volatile as $$
begin
  if p_is_pass then
    update stop_times s set until_at = greatest(s.from_at, p_now)
    where s.policy_id = p_policy_id and s.until_at > p_now and s.partition_id = any(p_partition_ids);
  end if;
  insert into reasons as r (partition_id, from_at, policy_id, reason, waited)
  select q.id, a.at, p_policy_id, k.reason, _reasons_until(q.id, a.at)
  from partitions q
  left join lateral (
    select x.from_at, x.reason from reasons x
    where x.partition_id = q.id order by x.from_at desc limit 1) l on true
  left join limiters b on b.id = q.blocked_on
  cross join lateral (
    select q.denied_reason || coalesce(case when b.kind <> 'ahead' then ':' || b.gate end, '') as reason
  ) k
  cross join lateral (select greatest(p_now, l.from_at) as at) a   -- a clock may go back
  where q.id = any(p_partition_ids) and l.reason is distinct from k.reason
  on conflict (partition_id, from_at) do update set reason = excluded.reason;
end
$$;
