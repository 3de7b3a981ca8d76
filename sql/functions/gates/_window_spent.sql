-- What was spent in the last `seconds`.
create or replace function _window_spent(
  spent spending[], seconds float8, now timestamptz
) returns float8 language plpgsql stable as $$
begin
  return (select coalesce(sum(s.cost), 0) from unnest(spent) s where s.at > now - make_interval(secs => seconds));
end
$$;
