-- Whether a limiter has no room for a partition's next job: no slot (one kept for another partition is none), too few
-- tokens (a job dearer than the bucket waits for a full one), or a rate of zero. An expression, so that it is inlined.
create or replace function :DISPATCH_POLICY_SCHEMA._lacks_room(
  kind text, slots int, reserved_for uuid, tokens float8, capacity float8, rate float8, partition_id uuid, cost float8
) returns boolean language sql immutable as $$
  select slots - case when reserved_for <> partition_id then 1 else 0 end < 1
    or tokens < least(cost, capacity) - 1e-9
    or (kind = 'throttle' and rate <= 0);
$$;
