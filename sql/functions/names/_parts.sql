-- Two parts of a list, the first `p_first` of `p_all` places and the others. The list of work is consumed from its end, so
-- the first part is its last entry. An empty part is left out.
create or replace function _parts(p_first int, p_all int) returns jsonb
language sql stable as $$
  select case when p_first < p_all then jsonb_build_array(jsonb_build_array(p_first + 1, p_all)) else '[]' end
    || case when p_first > 0 then jsonb_build_array(jsonb_build_array(1, p_first)) else '[]' end;
$$;
