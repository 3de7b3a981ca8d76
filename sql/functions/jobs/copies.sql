-- A job that came past its policy: a copy of it is staged.

-- Stages a copy of the job, once, and returns its staged id. Its place in the queue, its key, flags and remaining attempts
-- go along, and so does its age among the jobs of its key. If a later job of the key is already staged, that one stays.
--
-- The job may have been parked, and somebody retried it by hand. Then the copy takes the place of its staged row, also in strict
-- order, and is the last job of its key for `uniqueFor`. If another session has that row locked, it stays until its own time.
--
-- A worker may have fetched the job before a newer one of its key was admitted. Then Graphile Worker has taken the key off
-- this row. A copy under that key would pass for the newest, and overwrite the newer job. So such a copy has no key, and
-- runs beside the newer one, as in Graphile Worker. Only a look after the copy is staged is sure. Whoever takes the key off
-- deletes or stages a row of this key first.
--
--   p_wins   the newest job of a key wins: there is no copy, and null is returned, if a later job from past the policy has taken the
--            key, or a staged one knows this one
create or replace function _stage_copy(
  p_job_id bigint, p_revision int, p_batch json, p_payload json, p_quarantined boolean,
  p_wins boolean default false
) returns bigint language plpgsql as $$
declare
  v_key text := p_batch #>> '{jobs,0,jobKey}';
  v_replaces boolean := exists (
    select from staged_jobs s where s.job_key = v_key);
  v_generation int := (
    select _generation_of(p, (p_batch ->> 'version')::int)
    from policies p where p.name = p_batch ->> 'policy');
  v_copy_id bigint;
  v_staged_id bigint;   -- of the copy, or of the newer job
  v_parked record;
begin
  insert into superseded_jobs as o (job_id, revision) values (p_job_id, p_revision)
  on conflict (job_id, was_parked) do update set revision = excluded.revision, staged_id = null
  where o.revision is distinct from excluded.revision;
  if not found then
    return (select o.staged_id from superseded_jobs o where o.job_id = p_job_id and not o.was_parked);
  end if;
  -- a job that was admitted is older than any staged job of its key
  select s.id into v_staged_id from staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = p_job_id and j.key = s.job_key
  where _is_ours(j.flags, j.created_at, j.key);
  if v_staged_id is null then
    begin
      select s.id into v_copy_id from _stage_batch(
        p_batch ->> 'policy', v_generation, p_batch -> 'partitions', p_batch -> 'jobs', 'stage_copy', p_payload) s;
      if v_key is not null and not exists (
        select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id and j.key = v_key
      ) then
        raise exception using errcode = 'DPOUT';
      end if;
    exception when sqlstate 'DPOUT' then   -- what the copy replaced is back
      if p_wins and (exists (
          select from :GRAPHILE_WORKER_SCHEMA.jobs j
          where j.key = v_key and j.id > p_job_id and not _is_ours(j.flags, j.created_at, j.key))
        or exists (select from staged_jobs s where s.job_key = v_key and s.known_job_id = p_job_id)) then
        return null;
      end if;
      v_replaces := false;
      select s.id into v_copy_id from _stage_batch(
        p_batch ->> 'policy', v_generation, p_batch -> 'partitions', (
          select json_build_array(json_object_agg(j.key, j.value))
          from json_each(p_batch #> '{jobs,0}') j where j.key <> 'jobKey'), 'stage_copy', p_payload) s;
    end;
    v_staged_id := coalesce(v_copy_id, (   -- no copy: the staged one is newer
      select s.id from staged_jobs s where s.job_key = v_key));
  end if;
  update superseded_jobs o set staged_id = v_staged_id where o.job_id = p_job_id and not o.was_parked;
  if v_copy_id is null then
    return v_staged_id;
  end if;
  -- Somebody may have retried a parked job by hand, so that it started while its row still waited in staging. So the copy takes
  -- the place of either. A flag counts only if an admission wrote it: somebody may have copied those of a job that goes on.
  perform _tell_moved(p.id, (
    select _staged_id_of(j.flags) from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and _is_ours(j.flags, j.created_at, j.key)), p_job_id, v_copy_id, null)
  from policies p where p.name = p_batch ->> 'policy';
  -- A producer may have the key locked in an open transaction. It adds a newer job of the key, so nobody waits for it.
  select s.id, s.sort_at into v_parked from staged_jobs s
  where s.id = _parked_row_of(p_job_id) for update skip locked;
  if found then
    update unique_keys k set staged_id = v_copy_id
    where k.ctid = any(array(
      select x.ctid from unique_keys x
      where x.staged_id = v_parked.id for update skip locked));
    perform _drop_staged(array[v_parked.id]);
  end if;
  perform _count_pending(p_batch ->> 'policy', case when v_replaces then 0 else 1 end);
  update staged_jobs s set known_job_id = p_job_id, known_revision = p_revision
  where s.id = v_copy_id;
  if p_quarantined then
    -- it gets no place before others: in strict order they would wait for it until an operator acts
    update staged_jobs s
    set due = false, retry_at = 'infinity', waits_for = null, failures = 1,
      error = format('added past the policy, as job %s of Graphile Worker, which its "unmanaged" rejects', p_job_id)
    where s.id = v_copy_id;
  elsif v_parked.sort_at is not null then
    update staged_jobs s set sort_at = v_parked.sort_at where s.id = v_copy_id;
  end if;
  return v_copy_id;
end
$$;

-- Completes originals of which a copy is staged, or has run, and which no worker has locked: those of these jobs, or all
-- (null). The process that copied them could not complete them. A worker without this package would run them again.
create or replace function _complete_copied(p_job_ids bigint[]) returns void
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_revisions int[];
begin
  select array_agg(j.id), array_agg(j.revision) into v_ids, v_revisions
  from superseded_jobs o
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = o.job_id and j.revision = o.revision and j.locked_at is null
  where p_job_ids is null or o.job_id = any(p_job_ids);
  if v_ids is not null then
    perform from :GRAPHILE_WORKER_SCHEMA.complete_jobs(_lock_in_revision(v_ids, v_revisions));
  end if;
end
$$;
