-- Frees lost slots. Returns those it could not free yet; see _release, which also describes `p_jobs`. Each has its
-- policy's name besides, and "elsewhere": it was seen to run in a worker without this package. Those are counted.
create or replace function _release_lost(p_jobs json, out left_ids bigint[]) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
begin
  left_ids := (select r.left_ids from _release(p_jobs, null) r);
  insert into ended_elsewhere as e (policy_id, jobs, last_at)
  select p.id, count(*), clock_timestamp()
  from json_to_recordset(p_jobs) j (job bigint, policy text, elsewhere boolean)
  join policies p on p.name = j.policy
  where j.elsewhere and j.job <> all (left_ids)
  group by p.id order by p.id
  on conflict (policy_id) do update set jobs = e.jobs + excluded.jobs, last_at = excluded.last_at;
end
$$;
