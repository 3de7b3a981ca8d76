-- Which limits count more, those of a job whose process has this version of a policy, or others: the higher number. A job of
-- the version in force changes what is there. Limits of any other version count only where there are none of it.
create or replace function _generation_of(
  p_policy policies, p_version int
) returns int language sql immutable as $$
  select case when p_version = (p_policy).version then (p_policy).generation else -1 end;
$$;
