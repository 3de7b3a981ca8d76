-- Whether jobs that are staged under this bound may be dropped later, because newer ones need their room.
create or replace function _is_droppable(p_when_full text, p_max_in_all int) returns boolean
language sql immutable as $$
  select p_max_in_all is not null and p_when_full = 'drop_oldest';
$$;
