-- Whether Graphile Worker's row still has the job that is meant, and not the next one of its key. It has if its revision is
-- the one that was named (null: whichever). A job that may not replace it (unsafe_dedupe) raises the revision as well, but leaves
-- the flag with its staged id.
create or replace function _is_row_of(
  named_revision int, staged_id bigint, revision int, flags jsonb
) returns boolean language sql immutable as $$
  select named_revision is null or revision = named_revision
    or (_staged_id_of(flags) = staged_id) is true;
$$;
