-- When a job that is not due yet may come before a partition's next one, which waits for tokens: it may cost less. So the
-- partition is looked at when it is due, and in 50 ms at the soonest. Of the first twenty; after them the partition is looked
-- at again. Null: there is none.
create or replace function _earlier_at(
  p_partition_id uuid, p_priority smallint, p_run_at timestamptz, p_id bigint, p_in_order boolean, p_now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
  return (
    select min(greatest(x.at, p_now + interval '50 milliseconds')) from (
      select y.*, row_number() over () as place from (
        select coalesce(s.retry_at, s.run_at) as at, s.priority, s.run_at, s.id
        from staged_jobs s
        where s.partition_id = p_partition_id and not s.due order by coalesce(s.retry_at, s.run_at) limit 20
      ) y
    ) x
    where (x.priority, x.run_at, x.id) < (p_priority, p_run_at, p_id) or x.place = 20 or p_in_order);
end
$$;
