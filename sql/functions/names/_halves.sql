-- The halves of a range of places, the second half first, for a list of work that is taken from its end. If the number of
-- places is odd, the first half has one more. A range of one place has no halves: do not call it for one.
create or replace function _halves(p_from int, p_to int) returns jsonb
language sql stable as $$
  select jsonb_build_array(
    jsonb_build_array((p_from + p_to) / 2 + 1, p_to), jsonb_build_array(p_from, (p_from + p_to) / 2));
$$;
