-- Whether a worker pool that has the definition in force runs a tick loop of the policy. It works out partition and limits of
-- jobs that a process of another version brings. Without one nobody might do so, and the jobs would wait in vain.
--
-- A leader whose machine is busy renews its lease too late. For that moment nobody else's limits are believed: within 30
-- seconds, the longest that a lease lasts, it is back, or another pool has the lease. One that steps down says so.
create or replace function _leader_keys(p_policy policies)
returns boolean language plpgsql stable as $$
begin
  return exists (
    select from leases l
    join workers w on w.pool_id = l.holder
    where l.policy = (p_policy).name and not w.ended and l.expires_at > clock_timestamp() - interval '30 seconds'
      and w.definitions #>> array[(p_policy).name, 'hash'] = (p_policy).definition_hash);
end
$$;
