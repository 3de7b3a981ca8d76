-- Whether a worker pool that has the definition in force runs a tick loop of the policy. It works out partition and limits of
-- jobs that a process of another version brings. Without one nobody might do so, and the jobs would wait in vain.
create or replace function _leader_keys(p_policy policies)
returns boolean language plpgsql stable as $$
begin
  return exists (
    select from leases l
    join workers w on w.pool_id = l.holder
    where l.policy = (p_policy).name and l.expires_at > clock_timestamp()
      and w.definitions #>> array[(p_policy).name, 'hash'] = (p_policy).definition_hash);
end
$$;
