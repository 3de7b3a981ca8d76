-- Whether the words of a new stop replace those of the one that a partition has. A hold, which may be a job's, replaces neither
-- those of an operator's pause nor those of a hold that ends later.
create or replace function _tells_of_stop(
  held_before timestamptz, paused_before timestamptz, held timestamptz, now timestamptz
) returns boolean language sql immutable as $$
  select held is null or (paused_before <= now and (held_before <= now or held_before <= held));
$$;
