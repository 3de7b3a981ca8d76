-- Passes the jobs of a policy that is switched off to Graphile Worker, by _stage_plain. That replaces staged jobs of
-- their keys, or keeps them in mode unsafe_dedupe.
create or replace function _add_past_gates(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text
) returns setof staging language plpgsql as $$
declare
  v_jobs json := p_jobs;
  v_known json;
  v_rows staging[];
  v_others bigint[] := '{}';
begin
  if p_mode = 'unsafe_dedupe' then
    select json_agg(j.value) filter (where s.id is null), json_agg(j.value) filter (where s.id is not null)
    into v_jobs, v_known
    from json_array_elements(p_jobs) j
    left join staged_jobs s on s.job_key = j.value ->> 'jobKey';
    if v_known is not null then
      return query select s.* from _known_jobs(p_policy, p_partitions, v_known) s;
    end if;
  end if;
  if v_jobs is not null then
    v_rows := array(select s from _stage_plain(v_jobs, p_mode) s);
    if p_mode = 'unsafe_dedupe' then   -- a job outside the policy is not shown
      v_others := array(
        select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id in (select s.id from unnest(v_rows) s)
          and not _has_task(p_policy, j.task_identifier));
      return query
      select a.* from unnest(v_rows) s
      join _not_added(p_policy, p_partitions, v_jobs) a on a.n = s.n
      where s.id = any (v_others);
    end if;
    return query
    select s.n, s.staged, s.id, s.task_identifier, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority, s.flags,
      s.created_at, s.policy, s.partition, s.shard,
      -- the payload of a replaced job may be merged into it
      (select json_object_agg(f.key, f.value) from json_each(s.job) f where f.key <> 'payload'), s.admitted
    from unnest(v_rows) s where s.id <> all (v_others);
  end if;
end
$$;
