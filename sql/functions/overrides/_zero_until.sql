-- When the override ends that gives a limiter a rate or a cap of 0. Null: nobody knows when it lets something go, because the
-- override has no end, or the 0 is the gate's own.
create or replace function _zero_until(p_limiter_id bigint, p_now timestamptz)
returns timestamptz language plpgsql stable as $$
begin
  return (
    select nullif(o.until_at, 'infinity') from limiters l
    cross join lateral _override_now(l.policy_id, l, p_now) o
    where l.id = p_limiter_id and coalesce((o.set ->> 'rate')::float8, (o.set ->> 'max')::float8) <= 0);
end
$$;
