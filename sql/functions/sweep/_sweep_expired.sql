-- Drops jobs that have expired in partitions that no pass looks at: paused ones, held ones, and those that wait for a
-- limiter. At most 1,000, those that expired first; returns how many.
create or replace function _sweep_expired(p_now timestamptz) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s' as $$
declare
  v_ids bigint[] := array(
    select s.id from staged_jobs s
    where s.expires_at <= p_now order by s.expires_at limit 1000 for update skip locked);
begin
  perform _drop_expired(v_ids);
  return cardinality(v_ids);
end
$$;
