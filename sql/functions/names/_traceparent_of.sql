-- The trace context in the flag of a job that was staged; null: it has none. See _ticket.
create or replace function :DISPATCH_POLICY_SCHEMA._traceparent_of(flags jsonb) returns text language sql immutable as $$
  select :DISPATCH_POLICY_SCHEMA._traceparent(split_part(:DISPATCH_POLICY_SCHEMA._flag_text(flags), '.', 4));
$$;
