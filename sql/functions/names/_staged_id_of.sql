-- The staged id that a job of Graphile Worker's carries as a flag; null: none, or one that somebody made up. Both
-- expressions are bare, so that PostgreSQL inlines them.
create or replace function _staged_id_of(flags jsonb) returns bigint language sql immutable as $$
  select case when _staged_id_text(flags) ~ '^[0-9]{1,18}$'
    then _staged_id_text(flags)::bigint end;
$$;
