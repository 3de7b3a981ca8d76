-- Adds these changes to the load of their policies. It is bounded: of each minute a hundred partitions have rows, and all
-- others share one. Partitions that have a row of the minute keep it. Then come those that had one of the minute before.
-- So a partition is not in and out. Then come those with the most jobs.
create or replace function _fold_load(
  p_changes load_change[]
) returns void language plpgsql volatile as $$
begin
  with change as materialized (
    select c.policy_id, date_trunc('minute', c.at) as minute, c.partition_id, extract(second from c.at)::smallint as second,
      c.came, c.cost, c.admitted, c.ended, c.run_seconds
    from unnest(p_changes) c
  ),
  jobs as materialized (
    select c.policy_id, c.minute, c.partition_id, sum(c.came + c.admitted + c.ended) as jobs
    from change c group by c.policy_id, c.minute, c.partition_id
  ),
  known as materialized (
    select j.policy_id, j.minute, j.partition_id, j.jobs,
      exists (
        select from load l
        where (l.policy_id, l.minute, l.partition_id) = (j.policy_id, j.minute, j.partition_id)) as has_row,
      exists (
        select from load l
        where (l.policy_id, l.minute, l.partition_id)
          = (j.policy_id, j.minute - interval '1 minute', j.partition_id)) as had_row
    from jobs j
  ),
  there as materialized (
    select m.policy_id, m.minute, (
        select count(*) from load l
        where (l.policy_id, l.minute) = (m.policy_id, m.minute)) as n
    from (select distinct j.policy_id, j.minute from jobs j) m
  ),
  placed as materialized (
    select x.policy_id, x.minute, x.partition_id,
      case when x.has_row or x.place + t.n <= 100 then x.partition_id
        else '00000000-0000-0000-0000-000000000000' end as row_id
    from (
      select k.*, row_number() over (
        partition by k.policy_id, k.minute, k.has_row order by k.had_row desc, k.jobs desc, k.partition_id) as place
      from known k
    ) x join there t on (t.policy_id, t.minute) = (x.policy_id, x.minute)
  ),
  by_second as materialized (
    select c.policy_id, c.minute, p.row_id, c.second, sum(c.came)::int as came, sum(c.cost) as cost,
      sum(c.admitted) as admitted, sum(c.ended) as ended, sum(c.run_seconds) as run_seconds
    from change c
    join placed p on (p.policy_id, p.minute, p.partition_id) = (c.policy_id, c.minute, c.partition_id)
    group by c.policy_id, c.minute, p.row_id, c.second
  )
  insert into load as l (
    policy_id, minute, partition_id, seconds, came, cost, admitted, ended, run_seconds)
  select b.policy_id, b.minute, b.row_id,
    coalesce(array_agg(b.second order by b.second) filter (where b.came > 0), '{}'),
    coalesce(array_agg(b.came order by b.second) filter (where b.came > 0), '{}'),
    sum(b.cost), sum(b.admitted), sum(b.ended), sum(b.run_seconds)
  from by_second b group by b.policy_id, b.minute, b.row_id order by b.policy_id, b.minute, b.row_id
  on conflict (policy_id, minute, partition_id) do update set
    seconds = l.seconds || excluded.seconds, came = l.came || excluded.came, cost = l.cost + excluded.cost,
    admitted = l.admitted + excluded.admitted, ended = l.ended + excluded.ended,
    run_seconds = l.run_seconds + excluded.run_seconds;
end
$$;
