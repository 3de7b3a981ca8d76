-- The reason of a limiter that has no room, by its kind and numbers. It is an expression, so that PostgreSQL inlines it.
create or replace function _lack_reason(kind text, tokens float8, rate float8, cap int)
returns text language sql immutable as $$
  select case
    when tokens is not null then case when rate <= 0 then 'rate_zero' else 'throttle_empty' end
    when cap = 0 and kind <> 'ahead' then 'max_zero'
    else kind || '_full' end;
$$;
