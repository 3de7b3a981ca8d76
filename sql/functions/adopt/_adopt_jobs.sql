-- Adopts these jobs, all or none. Returns how many, and those whose payload has no key; if there are any, the caller undoes
-- this call.
--
-- A job of the page may have run to its end meanwhile, and only then was one of its key staged. By the page the staged one
-- looks older, and nothing of its key would be left. So if Graphile Worker returns fewer jobs, and staged ones were
-- dropped, this raises lock_not_available. The caller tries smaller parts, and the job that is gone drops nothing.
--
-- Locks: staged rows in the order of their keys, as staging takes them, then Graphile Worker's rows.
create or replace function _adopt_jobs(
  p_policy policies, p_task text,
  p_jobs waiting_job[], out moved int, out unkeyed bigint[]
) language plpgsql as $$
declare
  -- A staged job that did not know Graphile Worker's when it was added is older than that one. But one that was added while
  -- an admission was not committed did not know that job either, and is newer.
  v_older_ids bigint[] := array(
    select s.id from staged_jobs s
    join unnest(p_jobs) w on w.job_key = s.job_key
    where s.job_key = any(array(select u.job_key from unnest(p_jobs) u))
      and not w.was_admitted and (s.known_job_id, s.known_revision) is distinct from (w.id, w.revision)
    order by s.job_key for update of s);
  v_new waiting_job[] := array(
    select w from unnest(p_jobs) w where w.attempts = 0);
  v_tried waiting_job[] := array(
    select w from unnest(p_jobs) w where w.attempts > 0);
  v_parked record;
begin
  perform _drop_staged(v_older_ids) where v_older_ids <> '{}';
  select m.moved, m.unkeyed into moved, unkeyed
  from _move_into_staging(p_policy, p_task, v_new) m;
  if v_tried <> '{}' then
    v_parked := _park_waiting(p_policy, p_task, v_tried);
    moved := moved + v_parked.moved;
    unkeyed := unkeyed || v_parked.unkeyed;
  end if;
  if v_older_ids <> '{}' and unkeyed = '{}' and moved < cardinality(p_jobs) then
    raise exception 'dispatch_policy: a job of a key is gone' using errcode = 'lock_not_available';
  end if;
end
$$;
