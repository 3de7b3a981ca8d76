-- Locks those of these staged jobs that no other session has locked, and returns them.
create or replace function _lock_available_staged(p_ids bigint[])
returns bigint[] language plpgsql volatile as $$
begin
  return array(
    select s.id from staged_jobs s
    where s.id = any(p_ids) order by s.id for update skip locked);
end
$$;
