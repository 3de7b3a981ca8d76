-- What a pass reads of these partitions, once for all of its steps. The caller has locked them, so nobody else changes them
-- meanwhile. The pass itself changes none of this before its last step.
--
-- The danger: while somebody's snapshot is open, each look-up of a row walks all versions that the row had since. A pass that
-- looked its partitions up in each of its steps took 19 times as long after 600 passes. The cure: it reads them here, and only
-- its last step looks them up again, to write them.
--
--   p_first   those that go before their turn, beside those that are marked so
create or replace function _claimed(p_partition_ids uuid[], p_first uuid[] default '{}')
returns claimed[] language plpgsql stable as $$
begin
  return array(
    select row(p.id, p.limiter_ids, p.weight, p.min_cost, p.due_at, p.waiting_since, p.decayed_admits, p.decayed_at,
      p.mean_work, p.admitted_at, p.goes_first or p.id = any(p_first), p.probing, p.probe_job_id, p.head_priority, p.head_run_at,
      p.head_id)::claimed
    from partitions p where p.id = any(p_partition_ids));
end
$$;
