-- What a pass met at shadow gates: how many of its jobs each limiter would have held back, and what the others cost. The jobs come
-- in the order in which a real gate ranks them. From the first one without room on, all are held back, and take nothing.
--
--   p_kept   jobs that keep slots and tokens which they had before
--
-- Each gate is judged by itself: what one would have held back takes from the others all the same, because it goes.
create or replace function _shadow_left(
  p_limiters room_before[], p_claimed claimed[],
  p_candidates candidate[],
  p_admissions admission[], p_kept bigint[]
) returns shadow_left[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(j.id, j.gate, count(*) filter (where not j.has_room), coalesce(sum(j.cost) filter (where j.has_room), 0))
      ::shadow_left
    from (
      select c.*, case when c.shadow_slots is not null then c.rank <= c.shadow_slots
        else c.rate > 0 and _lets_through(
          c.shadow_tokens, case when c.rank = 1 then c.capacity else 'Infinity' end, c.used) end as has_room
      from (
        select l.id, l.gate, l.shadow_slots, l.shadow_tokens, l.capacity, l.rate, c.cost,
          row_number() over in_order as rank, sum(c.cost) over in_order as used
        from unnest(p_admissions) a
        join unnest(p_candidates) c on c.staged_id = a.staged_id
        join unnest(p_claimed) p on p.id = c.partition_id
        cross join lateral unnest(p.limiter_ids) u (id)
        join unnest(p_limiters) l on l.id = u.id and (l.shadow_slots is not null or l.shadow_tokens is not null)
        where a.admitted and (a.job_id in (select unnest(p_kept))) is not true
        window in_order as (partition by l.id order by c.vt, c.priority, c.run_at, c.staged_id rows unbounded preceding)
      ) c
    ) j
    group by j.id, j.gate);
end
$$;
