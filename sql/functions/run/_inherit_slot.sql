-- Gives the slot of an admitted job to the job that replaced it, in its row and under its key. The slot must count for all
-- limiters of the new job. The new job then is an admission of its own, so the end of the old one frees nothing.
--
-- The danger: the old job may have run and failed, and nothing tells, because Graphile Worker has overwritten its row. The
-- new one would run for its tokens, and in spite of the hold that its failure has set. The cure: it does not inherit where
-- tokens are paid or where its partition is stopped. There _admit_few decides.
create or replace function _inherit_slot(
  p_policy policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_now timestamptz
) returns boolean language plpgsql as $$
begin
  update in_flight_jobs f set
    staged_id = p_staged_id, admission = _admission_now(), revision = p_revision,
    attempt = null, pool_id = null, started_at = null, missing_since = null, admitted_at = clock_timestamp(),
    cancelled_at = null, cancelled_by = null, cancel_reason = null
  from partitions p
  where f.job_id = p_job_id and p.id = f.partition_id
    and p.id = _partition_id((p_policy).name, p_key)
    and f.limiter_ids @> array(
      select l.id from limiters l
      where l.id = any(p.limiter_ids) and not l.by_tokens and (l.numbers).shadow is not true)
    and not exists (
      select from limiters l where l.id = any(p.limiter_ids) and l.by_tokens
        and (l.numbers).shadow is not true)
    and not p.probing and (greatest((p_policy).paused_until, p.stopped_until) > p_now) is not true;
  return found;
end
$$;
