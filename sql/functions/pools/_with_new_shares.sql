-- The limiters with `perWorker` at which somebody was denied while fewer worker pools lived than now.
--
-- Their room grows without a release, and a heartbeat waits for no lock. So a denial leaves the number of pools that it went
-- by, under the limiter's lock, and passes compare it. Of a policy without `perWorker` there is none to look for.
create or replace function _with_new_shares(p_policy_id int, p_most int) returns bigint[]
language plpgsql stable as $$
begin
  if not exists (
    select from limiters l
    where l.policy_id = p_policy_id and l.fewest_pools is not null
  ) then
    return '{}';
  end if;
  return array(
    select l.id from limiters l
    where l.policy_id = p_policy_id and l.fewest_pools < _live_pools(p_policy_id)
      and (l.numbers).per_worker
    limit p_most);
end
$$;
