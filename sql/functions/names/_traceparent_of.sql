-- The trace context in the flag of a job that was staged; null: it has none. See _ticket.
create or replace function _traceparent_of(flags jsonb) returns text language sql immutable as $$
  select _traceparent(split_part(_flag_text(flags), '.', 4));
$$;
