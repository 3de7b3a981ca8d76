-- What a window remembers after `cost` was spent at `now`, without what is older than `remembered` seconds. If the clock
-- has gone back since the last entry, that entry's time counts. An entry more than a second ahead comes from a wrong clock.
--
-- A window remembers what was spent in at most 65 entries, oldest first. Spendings of the same 64th of the window are one
-- entry, with the time of the last of them. So it counts for a 64th too long at most, never too short. Older spendings,
-- which are remembered because a longer window may come back, are 65 entries more, by 64ths of that.
create or replace function _window_spend(
  spent spending[], seconds float8, remembered float8, cost float8, now timestamptz
) returns spending[] language plpgsql stable as $$
declare
  v_since timestamptz := now - make_interval(secs => seconds);
begin
  return (
    select coalesce(array_agg(row(p.at, p.cost)::spending order by p.at), '{}')
    from (
      select max(e.at) as at, sum(e.cost) as cost
      from (
        select case when s.at > now + interval '1 second' then now else s.at end as at, s.cost
        from unnest(spent) s where s.at > now - make_interval(secs => remembered)
        union all
        select greatest(now, (select max(s.at) from unnest(spent) s where s.at <= now + interval '1 second')), _window_spend.cost
        where _window_spend.cost > 0
      ) e
      group by e.at > v_since,
        floor(extract(epoch from e.at) * 64 / case when e.at > v_since then seconds else remembered end)
    ) p);
end
$$;
