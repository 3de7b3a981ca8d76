-- When enough has left the window for `cost`, or everything if the cost is more than the capacity: by the rule of
-- _lets_through.
create or replace function _window_ready_at(
  spent spending[], seconds float8, capacity float8, cost float8, now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
  if _lets_through(
    capacity - _window_spent(spent, seconds, now), capacity, cost) then
    return now;
  end if;
  return (
    select min(e.at) + make_interval(secs => seconds)
    from (
      select s.at, coalesce(sum(s.cost) over (order by s.at desc rows between unbounded preceding and 1 preceding), 0)
        as left_then
      from unnest(spent) s where s.at > now - make_interval(secs => seconds)
    ) e
    where _lets_through(capacity - e.left_then, capacity, cost));
end
$$;
