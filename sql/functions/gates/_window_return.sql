-- What a window remembers after `cost` is returned of what was spent at `since`. It comes off the entry that has the
-- spending: the first one from that time on. So it counts as if it had never been spent, and if the window has forgotten
-- the spending, there is nothing to return.
create or replace function _window_return(
  spent spending[], since timestamptz, cost float8
) returns spending[] language plpgsql immutable as $$
declare
  v_at timestamptz := (select min(s.at) from unnest(spent) s where s.at >= since);
begin
  return array(
    select row(s.at, case when s.at = v_at then greatest(s.cost - _window_return.cost, 0) else s.cost end)
      ::spending
    from unnest(spent) s order by s.at);
end
$$;
