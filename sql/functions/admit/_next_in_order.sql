-- The first due jobs of a partition whose policy has the option `order`. Those with a `sort_at` come first, by that time. The
-- others follow in the usual order. Each has its place among all candidates as priority and time. So a ranking over several
-- partitions knows no other order.
--
-- The danger: the second statement passes by all jobs that have a `sort_at`, and these may be 100,000. The cure: it runs only
-- if the first has found fewer than p_most.
create or replace function _next_in_order(p_partition_id uuid, p_most bigint)
returns table (ct tid, id bigint, priority smallint, run_at timestamptz, cost float8, is_plain boolean)
language plpgsql stable rows 10 as $$
#variable_conflict use_column
declare
  v_found bigint;
begin
  return query
  select s.ctid, s.id, (-32768)::smallint, s.sort_at, s.cost, s.job_key is null and s.parked_job_id is null
  from staged_jobs s
  where s.partition_id = p_partition_id and s.due and s.sort_at is not null
  order by s.sort_at, s.id limit p_most;
  get diagnostics v_found = row_count;
  if v_found < p_most then
    return query
    select s.ctid, s.id, s.priority, s.run_at, s.cost, s.job_key is null and s.parked_job_id is null
    from staged_jobs s
    where s.partition_id = p_partition_id and s.due and s.sort_at is null
    order by s.priority, s.run_at, s.id limit p_most - v_found;
  end if;
end
$$;
