-- What a pass reads of these partitions, once for all of its steps. The caller has locked them, so nobody else changes them
-- meanwhile. The pass itself changes none of this before its last step.
--
-- The danger: while somebody's snapshot is open, each look-up of a row walks all versions that the row had since. A pass that
-- looked its partitions up in each of its steps took 19 times as long after 600 passes. The cure: it reads them here, and only
-- its last step looks them up again, to write them.
--
--   p_first   those of them that go before their turn, beside those that are marked so
create or replace function _claimed(p_partition_ids uuid[], p_first uuid[])
returns claimed[] language plpgsql stable as $$
begin
  return array(select _as_claimed(p, p.id = any(p_first)) from partitions p where p.id = any(p_partition_ids));
end
$$;

-- A partition's row as passes read it. It is an expression, so that PostgreSQL inlines it.
--
--   goes_first   it goes before its turn, beside those that are marked so
create or replace function _as_claimed(p partitions, goes_first boolean) returns claimed language sql immutable as $$
  select row(p.id, p.shard, p.staged, p.limiter_ids, p.weight, p.min_cost, p.due_at, p.waiting_since, p.decayed_admits, p.decayed_at,
    p.mean_work, p.admitted_at, p.goes_first or goes_first, p.probing, p.probe_job_id, p.head_priority, p.head_run_at,
    p.head_id)::claimed;
$$;
