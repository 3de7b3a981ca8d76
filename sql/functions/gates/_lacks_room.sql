-- Whether a limiter has no room for a partition's next job: no slot, too few tokens, or a rate of zero. A slot that is
-- reserved for another partition does not count. It is an expression, so that PostgreSQL inlines it.
create or replace function _lacks_room(
  slots int, reserved_for uuid, tokens float8, capacity float8, rate float8, partition_id uuid, cost float8
) returns boolean language sql immutable as $$
  select slots - case when reserved_for <> partition_id then 1 else 0 end < 1
    or not _lets_through(tokens, capacity, cost)
    or (tokens is not null and rate <= 0);
$$;
