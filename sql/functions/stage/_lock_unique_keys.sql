-- Locks the job keys of a call (`uniqueFor`), in sorted order, until the transaction ends. So of two producers of one key the
-- second decides by what the first has done. The caller decides in later statements, which see what was committed while this
-- one waited. A key is locked before any staged job.
create or replace function _lock_unique_keys(
  p_policy policies, p_jobs json
) returns void language plpgsql as $$
begin
  -- a row that is there is locked, and not written
  insert into unique_keys as k (policy_id, job_key, look_at)
  select (p_policy).id, j.value ->> 'jobKey', clock_timestamp() + make_interval(secs => (p_policy).unique_for)
  from json_array_elements(p_jobs) j where j.value ->> 'jobKey' is not null order by 2
  on conflict (policy_id, job_key) do update set look_at = k.look_at where false;
end
$$;
