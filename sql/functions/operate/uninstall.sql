-- Unstages all waiting jobs, removes the crontab task's job and drops the schema. One call is one
-- bounded step: call it, each time in a transaction of its own, until `dropped` is true. To end in between loses nothing,
-- and the next call goes on. Only the owner of the schema may call it.
--
-- The first step switches every policy off, so that producers add their jobs to Graphile Worker from then on. Jobs in
-- flight are in Graphile Worker already: they stay there, and run as plain jobs. It refuses while worker pools live or job
-- groups are open, unless forced.
--
--   unstaged   jobs that this step unstaged; `parked`: those that had failed, and wait there for their retry
--   replaced      jobs that left without a trace, because a newer one of the key is there
--   refused       jobs that Graphile Worker refuses. They stay, quarantined with the error, and the schema stays with them
--   expired       jobs that were dropped, because they had expired
--   unlocked      jobs that were locked by worker pools that were killed. They run again
--   tick_jobs     jobs of the crontab's task that were removed
create or replace function :DISPATCH_POLICY_SCHEMA.uninstall(
  force boolean default false, count int default 500
) returns table (
  unstaged int, parked int, replaced int, refused int, expired int, unlocked int, tick_jobs int, dropped boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '900ms'   -- as _lock_out: the drop waits for every table
set client_min_messages = 'warning' as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_turns_off boolean;
begin
  if uninstall.count is null or uninstall.count < 1 then
    raise exception 'dispatch_policy: uninstall: count is %, expected 1 or more', coalesce(uninstall.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  perform :DISPATCH_POLICY_INTERNAL._check_isolation('uninstall');   -- qualified: who may not use that schema is told so
  if not coalesce(uninstall.force, false) then
    perform _refuse_live_workers('uninstall', null);
    perform _refuse_open_groups('uninstall');
  end if;
  v_turns_off := exists (select from policies p where p.enabled);
  update policies p set
    operator_enabled = case when p.enabled then false else p.operator_enabled end, unstaged_at = clock_timestamp();
  if v_turns_off then
    perform _audit('uninstall', null, null, null, null,
      jsonb_build_object('force', uninstall.force), null, null, 0, 0);
  end if;
  unlocked := 0;
  tick_jobs := 0;
  dropped := false;
  v_ids := _lock_staged(null, uninstall.count);
  if v_ids <> '{}' then
    select b.* into unstaged, parked, replaced, refused, expired
    from _unstage_what_passes(v_ids) b;
  else   -- only without a lock of its own, so that it cannot be in a deadlock
    select l.* into unstaged, parked, replaced, refused, expired, unlocked, tick_jobs, dropped
    from _lock_out(coalesce(uninstall.force, false), uninstall.count) l;
    if dropped then   -- here and not in a function that returns a row to this one: PostgreSQL would look it up again
      execute format('drop schema %I, %I cascade', :'DISPATCH_POLICY_SCHEMA', :'DISPATCH_POLICY_INTERNAL');
    end if;
  end if;
  return next;
end
$$;
