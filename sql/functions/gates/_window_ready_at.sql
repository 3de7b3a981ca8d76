-- When enough has left the window for `cost`; for all of it where the cost is more than the window holds.
create or replace function :DISPATCH_POLICY_SCHEMA._window_ready_at(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], seconds float8, capacity float8, cost float8, now timestamptz
) returns timestamptz language plpgsql stable as $$
declare
  v_may_stay float8 := greatest(capacity - cost, 0) + 1e-9;
begin
  if :DISPATCH_POLICY_SCHEMA._window_spent(spent, seconds, now) <= v_may_stay then
    return now;
  end if;
  return (
    select min(e.at) + make_interval(secs => seconds)
    from (
      select s.at, coalesce(sum(s.cost) over (order by s.at desc rows between unbounded preceding and 1 preceding), 0)
        as left_then
      from unnest(spent) s where s.at > now - make_interval(secs => seconds)
    ) e
    where e.left_then <= v_may_stay);
end
$$;
