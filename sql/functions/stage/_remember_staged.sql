-- Notes which jobs are the last ones of their keys now (`uniqueFor`). Called after these jobs were staged, by whoever has
-- locked the keys (_lock_unique_keys). With unsafe_dedupe, another policy's job may have a key: it is not the last one here.
create or replace function _remember_staged(
  p_policy policies, p_jobs json
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
as $$
begin
  update unique_keys k set staged_id = s.id
  from json_array_elements(p_jobs) j
  cross join lateral (
    select x.id, x.job_key from staged_jobs x
    where x.job_key = j.value ->> 'jobKey' and not _is_of_another(p_policy, x.task_identifier)
    limit 1) s
  where k.policy_id = (p_policy).id and k.job_key = s.job_key and k.staged_id is distinct from s.id;
end
$$;
