-- Slots left under a cap; a cap lowered below what is in flight leaves none, and nothing negative.
create or replace function :DISPATCH_POLICY_SCHEMA._concurrency_slots(max int, in_flight int)
returns int language sql immutable as $$
  select greatest(max - in_flight, 0);
$$;
