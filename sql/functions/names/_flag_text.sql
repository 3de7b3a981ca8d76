-- The flag of a job that was staged, without its beginning: see _ticket. '': the job has none. It is cut out of the flags'
-- text, because that takes half the time of parsing them. (A regular expression took 22 us, and 5,000 jobs took half as
-- long again.) Within a flag a quotation mark follows a backslash. Ours is mostly the first flag, which is found in half
-- the time.
--
-- It has no `set search_path`: only then the planner can put it into a view.
create or replace function _flag_text(flags jsonb) returns text language sql immutable return
  coalesce(
    nullif(split_part(split_part(flags::text, '{"dispatch_policy:', 2), '"', 1), ''),
    split_part(split_part(' ' || substr(flags::text, 2), ' "dispatch_policy:', 2), '"', 1));
