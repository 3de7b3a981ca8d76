-- Where a job stands, as json:
--
--   jobs_before        due jobs of its partition that go before it; 10,000: so many, or more. Null: it is not due
--   partitions_before  partitions that go before its own: of those that are ready, or of those that wait for the same
--     limiter. 1,000: so many, or more. Null: its partition is neither. As of the last look at each
create or replace function _place_in_line(
  p_partition partitions, p_jobs_before int
) returns jsonb language plpgsql stable as $$
declare
  v_partitions int;
begin
  if (p_partition).ready then
    select count(*) into v_partitions from (
      select from partitions q
      where q.policy_id = (p_partition).policy_id and q.shard = (p_partition).shard and q.ready
        and q.fair_key < (p_partition).fair_key limit 1000) x;
  elsif (p_partition).blocked_on is not null then
    select count(*) into v_partitions from (
      select from partitions q
      where q.blocked_on = (p_partition).blocked_on and q.fair_key < (p_partition).fair_key limit 1000) x;
  end if;
  return jsonb_build_object('jobs_before', p_jobs_before, 'partitions_before', v_partitions);
end
$$;
