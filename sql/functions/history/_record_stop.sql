-- Records that a policy, or one of its partitions, is stopped until a time. A pause replaces the one
-- before, and a hold adds to it. The time -infinity ends either. Of a policy without a history nothing is recorded.
--
-- A hold that goes on has one row. Each job's wait is worked out from all rows, and 50 jobs at once may hold a partition.
--
--   p_partition_id   null: the whole policy
create or replace function _record_stop(
  p_policy_id int, p_partition_id uuid, p_reason text, p_until timestamptz, p_now timestamptz
) returns void language plpgsql volatile as $$
declare
  v_goes_on boolean;
  v_partition_id uuid := coalesce(p_partition_id, '00000000-0000-0000-0000-000000000000');
begin
  if exists (
    select from policies p where p.id = p_policy_id and p.history_kept_for is not null
  ) then
    update stop_times s set until_at = greatest(s.from_at, p_now)
    where s.policy_id = p_policy_id and s.partition_id = v_partition_id and s.reason = p_reason and s.until_at > p_now
      and (p_reason = 'paused' or p_until = '-infinity');
    update stop_times s set until_at = greatest(s.until_at, p_until)
    where p_reason <> 'paused' and p_until > p_now and s.ctid = any(array(
      select x.ctid from stop_times x
      where x.policy_id = p_policy_id and x.partition_id = v_partition_id and x.reason = p_reason
        and x.until_at >= p_now and x.from_at <= p_now
      limit 1 for update skip locked));
    v_goes_on := found;
    insert into stop_times (policy_id, partition_id, reason, from_at, until_at)
    select p_policy_id, v_partition_id, p_reason, p_now, p_until where p_until > p_now and not v_goes_on;
  end if;
end
$$;
