-- Deletes staged jobs with their rows in other tables, most often because other jobs replace them. The caller has locked
-- them. `p_outcome` goes to the history.
--
-- A job without a partition has a row in keyless_jobs. _keyless_jobs locks such rows while JavaScript works the keys out.
-- A caller of this function may have limiters locked and must not wait, so a locked row stays. The function _keyless_jobs
-- deletes rows whose job is not there any more.
create or replace function _drop_staged(p_ids bigint[], p_outcome text default 'replaced')
returns void language plpgsql as $$
declare
  v_tasks text[];
  v_partition_ids uuid[];
begin
  perform _record_removed(p_ids, p_outcome);
  with dropped as (
    delete from staged_jobs s where s.id = any(p_ids)
    returning s.task_identifier, s.partition_id
  ),
  keyless as (
    delete from keyless_jobs k where k.staged_id = any(array(
      select x.staged_id from keyless_jobs x
      where x.staged_id = any(p_ids) for update skip locked))
  )
  select array_agg(d.task_identifier), array_agg(d.partition_id) into v_tasks, v_partition_ids from dropped d;
  perform _count_removed(v_tasks, v_partition_ids);
end
$$;
