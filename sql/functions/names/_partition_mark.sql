-- The mark of its partition in the flag of a job that was staged: the first eight digits of the partition's id. '': none.
-- It has no `set search_path`: only then the planner can put it into a view.
create or replace function _partition_mark(flags jsonb) returns text language sql immutable return
  left(split_part(split_part(_flag_text(flags), '@', 2), '#', 2), 8);
