-- The jobs of its partition that go before a job, and what they cost: first those that are due. If it is not due itself,
-- those that are due before it are `later`. 10,000 of either: so many, or more. `busy_since`: from then on the partition
-- has had a due job.
--
-- All parts have the order of an index. Without it, PostgreSQL may read the whole table, because it expects to find
-- 10,000 rows soon. The first of 870,000 jobs took 278 ms, not 0.04.
create or replace function _work_ahead(
  p_job staged_jobs,
  out jobs int, out cost float8, out busy_since timestamptz, out later_jobs int, out later_cost float8
) language plpgsql stable as $$
begin
  select count(*), coalesce(sum(x.cost), 0), min(x.at) into jobs, cost, busy_since from (
    (select s.cost, greatest(s.created_at, s.run_at) as at from staged_jobs s
    where s.partition_id = (p_job).partition_id and s.due and s.sort_at is null and (p_job).sort_at is null
      and (s.priority, s.run_at, s.id) < ((p_job).priority, (p_job).run_at, (p_job).id)
    order by s.priority, s.run_at, s.id limit 10000)
    union all
    -- those that go before these, and the one for which they wait in strict order
    (select s.cost, greatest(s.created_at, s.run_at) from staged_jobs s
    where s.partition_id = (p_job).partition_id and (s.due or s.sort_at = '-infinity') and s.sort_at is not null
      and ((p_job).sort_at is null or (s.sort_at, s.id) < ((p_job).sort_at, (p_job).id))
    order by s.due, s.sort_at, s.id limit 10000) limit 10000) x;
  if (p_job).due then
    busy_since := least(busy_since, greatest((p_job).created_at, (p_job).run_at));
    later_jobs := 0;
    later_cost := 0;
  else
    select count(*), coalesce(sum(x.cost), 0) into later_jobs, later_cost from (
      select s.cost, s.priority, s.run_at, s.id from staged_jobs s
      where s.partition_id = (p_job).partition_id and not s.due and coalesce(s.retry_at, s.run_at) <= (p_job).run_at
      order by coalesce(s.retry_at, s.run_at) limit 10000) x
    where (x.priority, x.run_at, x.id) < ((p_job).priority, (p_job).run_at, (p_job).id);
  end if;
end
$$;
