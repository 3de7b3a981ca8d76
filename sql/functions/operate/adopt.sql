-- Moves jobs of a policy's task that wait in Graphile Worker into staging, in the order of their ids. It moves at most
-- `count`, and only those after the id `after`. Jobs that run stay. A job that has failed before is parked.
--
-- `matched` counts the jobs that wait, `changed` those that were adopted. The others were locked or have no key. If
-- `matched` is `count`, there may be more: call it again after `last_id`, in a transaction of its own.
--
-- While it waits for its turn, the policy may be declared anew or switched off. By the row that was read before, jobs would
-- get a partition of the old definition, or none would stop them. So the row is read again once it has the turn.
--
--   select * from dispatch_policy.adopt('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.adopt(
  task text, count int default 2000, after bigint default 0, reason text default null, by text default null,
  dry_run boolean default false
) returns table (matched int, changed int, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_jobs waiting_job[];
  v_turn_of int;   -- whose turn this session has
begin
  if adopt.count is null or adopt.count < 1 then
    raise exception 'dispatch_policy: adopt: count is %, expected a whole number from 1',
      coalesce(adopt.count::text, 'null') using errcode = 'DPARG';
  end if;
  loop
    select p.* into v_policy from policies p
    join policy_tasks t on t.policy_id = p.id
    where t.task_identifier = adopt.task;
    exit when adopt.dry_run or v_policy.id is not distinct from v_turn_of;
    perform _lock_turn(v_policy.id, 'adopt');
    v_turn_of := v_policy.id;
  end loop;
  if v_policy.id is null then
    raise exception 'dispatch_policy: adopt: task is %, expected a task with a policy; start a process that has the policy first',
      coalesce(quote_literal(adopt.task), 'null') using errcode = 'DPARG';
  elsif not v_policy.enabled then
    raise exception 'dispatch_policy: adopt: policy % is switched off, so ticks would admit the jobs past its gates; switch it on first, by switch_policy or the command enable',
      quote_literal(v_policy.name) using errcode = 'DPARG';
  end if;
  if coalesce(adopt.dry_run, false) then
    v_jobs := _waiting_jobs(v_policy, adopt.task, coalesce(adopt.after, 0), adopt.count);
    return query select cardinality(v_jobs), 0, v_jobs[cardinality(v_jobs)].id;
    return;
  end if;
  select a.matched, a.changed, a.last_id into matched, changed, last_id
  from _adopt(v_policy, adopt.task, coalesce(adopt.after, 0), adopt.count) a;
  if matched > 0 then
    perform _audit('adopt', v_policy.name, null, null, null,
      jsonb_build_object('task', adopt.task, 'after', adopt.after, 'last_id', last_id), adopt.reason, adopt.by, matched,
      changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.adopt from public;
