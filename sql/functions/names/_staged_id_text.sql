-- The staged id that a job of Graphile Worker's carries as a flag, as text; '': none.
create or replace function _staged_id_text(flags jsonb) returns text language sql immutable as $$
  select split_part(_flag_text(flags), '@', 1);
$$;
