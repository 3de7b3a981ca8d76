-- What a window remembers after its rest was lowered by `cost` at `now`. `reset_at`: so much, and nothing that was spent
-- before, returns earlier than that (null: what is lowered counts as spent now). No window counts for longer than its
-- length, so a later time than that changes nothing more.
create or replace function _window_lowered(
  spent spending[], seconds float8, remembered float8, cost float8,
  reset_at timestamptz, now timestamptz
) returns spending[] language plpgsql stable as $$
declare
  v_since timestamptz := now - make_interval(secs => seconds);
  v_at timestamptz := least(reset_at - make_interval(secs => seconds), now);
begin
  if reset_at is null then
    return _window_spend(spent, seconds, remembered, cost, now);
  end if;
  return (
    select array_agg(row(p.at, p.cost)::spending order by p.at)
    from (
      select e.at, sum(e.cost) as cost
      from (
        select case when s.at > v_since then greatest(s.at, v_at) else s.at end as at, s.cost from unnest(spent) s
        union all
        select v_at, _window_lowered.cost
      ) e
      group by e.at
    ) p);
end
$$;
