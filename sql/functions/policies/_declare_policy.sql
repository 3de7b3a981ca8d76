-- Records a policy as a process declares it. Workers decide which definition is in force: see _newest_live. While no worker
-- has the policy, the higher version is, and of equal versions that of the process which started last. A process whose clock
-- is ahead counts as started now: otherwise later processes would be refused until that time.
--
-- Returns whether this definition is now in force, and whether limits are to be worked out again from the stored
-- contexts. They are if it differs from the one before, or if a process that began to do so was killed.
--
--   p_settings   { "halfLifeSeconds", "admissionBatchSize", "tickAdmissionBudget", "ahead": { "jobs", "seconds" },
--     "enabled" }. A process without a preset leaves out the settings that it does not know. They stay as they are.
--   p_host, p_pid   the process that declares it
create or replace function _declare_policy(
  p_definition jsonb, p_hash text, p_settings jsonb, p_started_at timestamptz, p_host text default null, p_pid int default null
) returns table (in_force boolean, to_resolve boolean) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '2s'                     -- an open transaction may have paused or switched it: declared again later
as $$
declare
  v_name text := p_definition ->> 'name';
  v_started_at timestamptz := least(p_started_at, clock_timestamp());
  v_policy policies;
  v_live text;
begin
  perform _check_time_zones(p_definition);
  -- declarations of several processes at once, one after the other
  perform _lock_turn(0, 'declare');
  insert into policies (
    name, definition, definition_hash, declared_at, half_life, ahead_seconds, paused_until, paused_by, pause_reason,
    paused_with_all)
  select v_name, p_definition, p_hash, v_started_at, 60, 0.5,
    coalesce(a.until_at, '-infinity'), a.set_by, a.reason, a.until_at is not null   -- a new one is paused with all others
  from (select) one
  left join pause_of_all a on a.until_at > clock_timestamp()
  on conflict (name) do nothing;
  v_policy := _policy(v_name);
  perform _record_definition(
    v_policy, p_hash, p_definition, p_settings, p_host, p_pid, clock_timestamp());
  v_live := _newest_live(v_policy);
  in_force := case when v_live is null
    then ((p_definition ->> 'version')::int, v_started_at) >= (v_policy.version, v_policy.declared_at)
    else v_live = p_hash end;
  if in_force then
    perform _put_in_force(v_policy, p_hash, v_started_at);
  end if;
  to_resolve := in_force and exists (
    select from resolutions r where r.policy = v_name and r.definition_hash = p_hash);
  return next;
end
$$;
