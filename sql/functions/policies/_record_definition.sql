-- Records a definition that a process declares, its settings, and by whom. So it can be put in force, and the one in force can
-- be compared with those that other live workers have. A definition that is in force keeps its declaration: a worker that
-- starts with the same one changes nothing.
--
-- The danger: a definition with a value that differs at each start would leave a row each time. The cure: the next declaration
-- deletes rows that are not in force, are older than a day, and that no worker pool has. A silent pool may come back.
create or replace function _record_definition(
  p_policy policies, p_hash text, p_definition jsonb, p_settings jsonb, p_host text, p_pid int,
  p_now timestamptz
) returns void language sql volatile as $$
  insert into definitions as d (
    policy_id, hash, definition, settings, declared_at, host, pid)
  values ((p_policy).id, p_hash, p_definition, p_settings, p_now, p_host, p_pid)
  on conflict (policy_id, hash) do update set
    definition = excluded.definition, settings = d.settings || excluded.settings,
    declared_at = case when d.in_force_at is null then excluded.declared_at else d.declared_at end,
    host = case when d.in_force_at is null then excluded.host else d.host end,
    pid = case when d.in_force_at is null then excluded.pid else d.pid end;
  delete from definitions d
  where d.policy_id = (p_policy).id and d.in_force_at is null and d.declared_at < p_now - interval '1 day'
    and not exists (
      select from workers w
      where not w.ended and w.definitions #>> array[(p_policy).name, 'hash'] = d.hash);
$$;
