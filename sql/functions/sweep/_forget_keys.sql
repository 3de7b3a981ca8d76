-- Forgets job keys whose time is over (`uniqueFor`), and those whose last job went without completing. Such a job was dropped
-- or removed, or it failed for good and was deleted. At most 1,000 keys and 10,000 ends a call. It skips rows that another
-- session has locked. Returns how many rows it has deleted or postpone.
--
-- A job is still there if it is staged or in flight. If it was unstaged, only Graphile Worker has it.
create or replace function _forget_keys(p_now timestamptz) returns int language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '5s' as $$
declare
  v_ends int;
  v_keys int;
  v_policy_ids int[];
  v_job_keys text[];
begin
  delete from unique_ends x where x.ctid = any(array(
    select e.ctid from policies p
    cross join lateral (   -- a look at the index: with the time beside the policy's, each call read all ends
      select y.ctid from unique_ends y
      where y.policy_id = p.id
        and y.ended_at <= coalesce(p_now - make_interval(secs => p.unique_for), 'infinity')
      limit 10000 for update skip locked
    ) e limit 10000));
  get diagnostics v_ends = row_count;
  select coalesce(array_agg(l.policy_id), '{}'), coalesce(array_agg(l.job_key), '{}') into v_policy_ids, v_job_keys
  from (
    select k.policy_id, k.job_key from unique_keys k
    where k.look_at <= p_now order by k.look_at limit 1000 for update skip locked
  ) l;
  -- in a statement of its own, which sees the jobs of producers that had the keys until then
  with looked as materialized (
    select k.* from unnest(v_policy_ids, v_job_keys) u (policy_id, job_key)
    cross join lateral (
      select x.policy_id, x.job_key, x.staged_id from unique_keys x
      where x.policy_id = u.policy_id and x.job_key = u.job_key limit 1) k
  ),
  found as materialized (
    select l.policy_id, l.job_key, case
        when p.id is null then null
        when e.ended_at is not null
          then greatest(e.ended_at + make_interval(secs => p.unique_for), p_now + interval '1 second')
        when (select true from staged_jobs s where s.id = l.staged_id limit 1)
          or l.staged_id in (select f.staged_id from in_flight_jobs f)
          or (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = l.job_key limit 1)
          then p_now + make_interval(secs => greatest(p.unique_for, 60)) end as look_at
    from looked l
    left join policies p on p.id = l.policy_id and p.unique_for is not null
    left join lateral (   -- one look at the index for each
      select x.ended_at from unique_ends x
      where x.staged_id = l.staged_id limit 1) e on true
  ),
  forgotten as (
    delete from unique_keys k using found f
    where k.policy_id = f.policy_id and k.job_key = f.job_key and f.look_at is null returning 1
  ),
  postponed as (
    update unique_keys k set look_at = f.look_at from found f
    where k.policy_id = f.policy_id and k.job_key = f.job_key and f.look_at is not null returning 1
  )
  select (select count(*) from forgotten) + (select count(*) from postponed) into v_keys;
  return v_ends + v_keys;
end
$$;
