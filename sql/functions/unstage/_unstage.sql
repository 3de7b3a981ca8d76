-- Unstages these staged jobs to Graphile Worker, past their policy and without an admission: all of them, or it raises.
-- The caller has locked them. It is the one way back: of a policy's jobs (unstage) and of all (uninstall).
--
--   unstaged   all that Graphile Worker has now
--   parked        those of them that had failed, and wait there for their retry
--   replaced      jobs that left without a trace: a newer one of the key is there, or the parked job is gone
create or replace function _unstage(
  p_ids bigint[], out unstaged int, out parked int, out replaced int
) language plpgsql volatile as $$
declare
  v_keys text[] := array(
    select s.job_key from staged_jobs s
    where s.id = any(p_ids) and s.job_key is not null);
  v_added record;
begin
  parked := _unstage_parked(p_ids);
  v_added := _unstage_new(p_ids);
  unstaged := parked + v_added.jobs;
  replaced := cardinality(p_ids) - unstaged;
  perform _unstage_in_groups(p_ids, v_added.staged_ids, v_added.job_ids);
  perform _count_removed(array_agg(s.task_identifier), array_agg(s.partition_id))
  from staged_jobs s where s.id = any(p_ids);
  delete from keyless_jobs k where k.staged_id = any(p_ids);
  delete from staged_jobs s where s.id = any(p_ids);
  perform _give_up_replaced(v_keys) where v_keys <> '{}';
end
$$;
