-- What these limiters have left after a pass that put `p_admitted` in flight. `p_forced`: tokens stop at zero. The throttle of a
-- shadow gate gives tokens only to the jobs that it had tokens for (`p_shadows`). The slots of jobs that were in flight there
-- already (`p_recounted`, see _put_in_flight) are not taken twice.
create or replace function _rooms_after(
  p_limiters room_before[], p_claimed claimed[],
  p_admitted partition_admitted[], p_shadows shadow_left[],
  p_now timestamptz, p_forced boolean, p_recounted jsonb
) returns room_after[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(
        l, coalesce(n.jobs, 0), l.slots - coalesce(n.jobs, 0) + coalesce((p_recounted ->> l.id::text)::int, 0), t.tokens_left,
        case when l.spent is not null then _window_spend(
          l.spent, l.window_seconds, l.remembered, coalesce(l.tokens, l.shadow_tokens) - t.tokens_left, p_now) end
      )::room_after
    from unnest(p_limiters) l
    left join (
      select u.id, sum(n.jobs)::int as jobs, sum(n.cost) as cost
      from unnest(p_admitted) n
      join unnest(p_claimed) p on p.id = n.partition_id
      cross join unnest(p.limiter_ids) u (id)
      where n.jobs > 0 or n.cost > 0 group by u.id
    ) n on n.id = l.id
    cross join lateral (
      -- a cap's tokens are null: greatest and least would make them 0, and the cap would look full
      select case when l.shadow_tokens is not null then l.shadow_tokens - coalesce((
          select s.cost from unnest(p_shadows) s where s.limiter_id = l.id), 0)
        when p_forced and l.tokens is not null then greatest(l.tokens - coalesce(n.cost, 0), least(l.tokens, 0))
        else l.tokens - coalesce(n.cost, 0) end as tokens_left
    ) t);
end
$$;
