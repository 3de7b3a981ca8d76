-- Whether a failed job of Graphile Worker's had a newer job of its key. Either _give_up_replaced failed it. Or it ran when
-- the newer one came, and Graphile Worker took its key off; its flag still has the mark of the key.
create or replace function _is_replaced(flags jsonb, job_key text, last_error text) returns boolean
language sql immutable as $$
  select last_error is not distinct from _replaced_error()
    or (job_key is null and coalesce(split_part(_flag_text(flags), '.', 2), '') <> '');
$$;
