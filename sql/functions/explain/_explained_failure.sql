-- What _explained_run says of a job that has failed for good, by its staged id. Null: no such job has failed.
--
-- Such a job has no slot, so only its flag has the staged id. No index has that, so this reads all failed jobs of Graphile
-- Worker.
create or replace function _explained_failure(p_staged_id bigint)
returns jsonb language sql stable as $$
  select _explained_run(j.id) || jsonb_build_object('id', p_staged_id::text)
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  where j.locked_at is null and j.attempts >= j.max_attempts
    and strpos(j.flags::text, p_staged_id::text) > 0   -- cheap, and leaves few
    and _staged_id_of(j.flags) = p_staged_id
    and _is_ours(j.flags, j.created_at, j.key)
  limit 1;
$$;
