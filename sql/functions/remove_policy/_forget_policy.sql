-- Deletes all that is known of a policy, except for its rows in the audit. Partitions go a page at a time: false says that
-- there are more. A pass of somebody who still ticks it may be at work. So it locks what passes lock, in their order, and
-- looks again under the locks. If a job was staged or admitted meanwhile, it raises lock_not_available, and is tried again.
create or replace function _forget_policy(p_policy text, p_page int) returns boolean
language plpgsql volatile as $$
declare
  v_id int := (select p.id from policies p where p.name = p_policy);
  v_partitions uuid[];
begin
  perform from turns u where u.policy_id = v_id order by u.step, u.place for update;
  v_partitions := array(
    select q.id from partitions q where q.policy_id = v_id order by q.id limit p_page
    for update);
  if cardinality(v_partitions) < p_page then
    perform from policies p where p.id = v_id for update;
    perform from limiters l where l.policy_id = v_id order by l.id for update;
  end if;
  if exists (select from _staged_of(p_policy))
    or exists (select from in_flight_jobs f where f.policy_id = v_id) then
    perform _raise_in_use(p_policy);
  end if;
  delete from partitions q where q.id = any(v_partitions);
  -- with what they add to the counts; a job that was committed since would go without its arrival
  delete from arrivals a where a.policy = p_policy and a.partition_id = any(v_partitions);
  if exists (select from _staged_of(p_policy)) then
    perform _raise_in_use(p_policy);
  end if;
  if cardinality(v_partitions) = p_page then
    return false;
  end if;
  delete from limiters l where l.policy_id = v_id;
  delete from overrides o where o.policy_id = v_id;
  delete from freed f where f.policy_id = v_id;
  delete from ended_elsewhere e where e.policy_id = v_id;
  delete from activity a where a.policy_id = v_id;
  delete from minutes m where m.policy_id = v_id;
  delete from caps c where c.policy_id = v_id;
  delete from load l where l.policy_id = v_id;
  delete from history h where h.policy_id = v_id;
  delete from reasons r where r.policy_id = v_id;
  delete from stop_times s where s.policy_id = v_id;
  delete from unique_ends e where e.policy_id = v_id;
  -- an application may have a key locked, for as long as it likes: a sweep deletes that one
  delete from unique_keys k where k.ctid = any(array(
    select x.ctid from unique_keys x where x.policy_id = v_id for update skip locked));
  delete from turns u where u.policy_id = v_id;
  -- a job that is committed from here on stays, under a name that nobody declared
  delete from arrivals a where a.policy = p_policy and not exists (
    select from staged_jobs s where s.partition_id = a.partition_id);
  delete from keyless_jobs k where k.policy = p_policy and not exists (
    select from staged_jobs s where s.id = k.staged_id);
  delete from pending x where x.policy = p_policy;
  delete from drops d where d.policy = p_policy;
  delete from resolutions r where r.policy = p_policy;
  delete from leases l where l.policy = p_policy;
  delete from policies p where p.id = v_id;   -- and its tasks
  return true;
end
$$;
