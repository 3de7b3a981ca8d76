-- The first due jobs of each partition, all chosen, whatever its gates say: for admission by an operator, and for policies
-- that are switched off. One row more than `p_per_partition`, not chosen, tells whether the partition drains.
create or replace function _first_due(p_partition_ids uuid[], p_per_partition int, p_total int)
returns setof candidate language sql stable as $$
  select c.ct, c.id, c.partition_id, c.pos::int, c.priority, c.run_at, c.cost, 0, false,
    c.pos <= p_per_partition and (p_total is null or c.overall <= p_total), c.is_plain
  from (
    select s.*, u.id as partition_id,
      row_number() over (partition by u.id order by s.priority, s.run_at, s.id) as pos,
      row_number() over (order by s.priority, s.run_at, s.id) as overall
    from unnest(p_partition_ids) u (id)
    cross join lateral _next_in_order(u.id, p_per_partition::bigint + 1) s
  ) c;
$$;
