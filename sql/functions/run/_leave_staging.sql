-- Deletes the staged row of a parked job that runs, if it has one. False: another session has the row locked.
create or replace function _leave_staging(p_job_id bigint) returns boolean
language plpgsql volatile as $$
declare
  v_id bigint := _parked_row_of(p_job_id);
  v_row record;
begin
  if v_id is null then
    return true;
  end if;
  delete from staged_jobs s
  where s.id = (select x.id from staged_jobs x where x.id = v_id for update skip locked)
  returning s.task_identifier, s.partition_id into v_row;
  if not found then
    return false;
  end if;
  perform _count_removed(array[v_row.task_identifier], array[v_row.partition_id]);
  return true;
end
$$;
