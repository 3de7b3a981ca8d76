-- Called before a verb changes or removes staged or parked jobs, so that routing looks at their partitions again. It locks
-- the jobs, so that nobody moves them to another partition meanwhile. A parked job is found by its staged id or by its own.
create or replace function _before_change(p_job_ids bigint[]) returns void
language plpgsql volatile as $$
begin
  perform _head_changed(array(
    select s.partition_id from staged_jobs s
    where s.id = any(p_job_ids) or s.parked_job_id = any(p_job_ids) order by s.job_key, s.id for no key update));
end
$$;
