-- Why a job, or a partition's next job, waits, and what it waits for: as json, all read at one moment and without a lock.
--
--   as_of       the moment
--   state       of a job: staged, parked (failed, waits for its retry), admitted, running, failed (for good), ended (its
--     history says how), plain (of no policy's) or unknown. Of a partition: waiting, idle (no job waits) or unknown
--   id, job_id, policy, partition, task_identifier, run_at, attempts, started_at, worker_id, error   as far as it has them
--   reason      from the closed list; null: nothing holds it back
--   gate        the name of the gate that the reason is about; null: the reason is about none
--   next_at     when that ends, if a time ends it
--   partition_id   of its row in the view partitions; null: it has none
--   stop        who paused or held it, why and until when; null: nobody
--   gates       see _explained_gates
--   place       see _place_in_line
--   estimate    of a waiting job: when it starts, see _estimate; null: no_estimate says why there is none
--   ticked_by   the live worker pool that runs the loop of its shard; null: none does
--   cancelled   of a job in flight: when, by whom and why it was cancelled; null: nobody has
--   history     of a job: what is known of its past, as in the view `history`; null: its policy keeps none
--   sentence    all that in words
--   trace_id    of a job: the trace in which it was added; null: none is known
--   groups      the open job groups of a job, see _groups_of; missing: none
--
-- Of a partition, `reason`, `gates` and `place` are those of its next job.
create or replace function :DISPATCH_POLICY_SCHEMA.explain(
  id bigint default null, policy text default null, partition text default null
) returns jsonb language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_it jsonb;
  v_job staged_jobs;
  v_partition partitions;
  v_partition_id uuid;
  v_stop jsonb;
  v_history jsonb;
  v_groups jsonb;
begin
  if (explain.id is null) = (explain.policy is null or explain.partition is null) then
    raise exception 'dispatch_policy: explain: give an id, or a policy and a partition; got id %, policy %, partition %',
      coalesce(explain.id::text, 'null'), coalesce(quote_literal(explain.policy), 'null'),
      coalesce(quote_literal(explain.partition), 'null') using errcode = 'DPARG';
  end if;
  if explain.id is not null then
    select s.* into v_job from staged_jobs s
    where s.id = explain.id or s.parked_job_id = explain.id limit 1;
    v_history := _history_of(explain.id);
    if v_job.id is null then
      v_it := _explained_run(explain.id);
      if v_it ->> 'state' = 'unknown' and coalesce(v_history ->> 'outcome', 'failed') = 'failed' then
        v_it := coalesce(_explained_failure(explain.id), v_it);
      end if;
      if v_it ->> 'state' = 'unknown' and v_history ->> 'outcome' is not null then
        v_it := '{"state": "ended"}' || (
          select jsonb_object_agg(e.key, e.value) from jsonb_each(v_history) e
          where e.key in ('id', 'job_id', 'policy', 'partition', 'task_identifier', 'attempts', 'error', 'started_at'));
      end if;
    end if;
    select q.* into v_partition from partitions q where q.id = v_job.partition_id;
  else
    v_partition_id := _partition_id(
      (_policy(explain.policy)).name, explain.partition);
    select q.* into v_partition from partitions q where q.id = v_partition_id;
    -- before the router has made a partition, its jobs are there already
    select s.* into v_job from staged_jobs s
    where s.id = _head_of(v_partition_id);
    if v_job.id is null then
      select s.* into v_job from staged_jobs s
      where s.partition_id = v_partition_id and not s.due order by coalesce(s.retry_at, s.run_at) limit 1;
    end if;
    if v_partition.id is null and v_job.id is null then
      v_it := '{"state": "unknown"}';
    elsif v_job.id is null then
      v_stop := _stop_of(v_partition);
      v_it := jsonb_build_object('state', 'idle', 'reason', v_stop -> 'reason', 'stop', v_stop -> 'stop');
    end if;
    v_it := jsonb_build_object('policy', explain.policy, 'partition', explain.partition) || v_it;
  end if;
  if v_it is null then
    v_it := _explained_wait(v_job, v_partition, explain.id is null, v_now);
    if explain.id is null then
      v_it := v_it || '{"state": "waiting"}';
    end if;
  end if;
  v_it := jsonb_build_object('as_of', v_now, 'reason', null, 'gate', null, 'next_at', null, 'stop', null, 'gates', '[]'::jsonb,
    'place', null, 'estimate', null, 'no_estimate', null, 'partition_id', v_partition.id, 'history', v_history) || v_it;
  if explain.id is not null then
    v_it := v_it || jsonb_build_object('trace_id', coalesce(
      v_it ->> 'trace_id', _trace_id_of(v_job.traceparent), v_history ->> 'trace_id'));
    v_groups := _groups_of((v_it ->> 'id')::bigint, (v_it ->> 'job_id')::bigint);
  end if;
  return v_it || jsonb_build_object('sentence', _sentence(v_it, v_now)
      || coalesce(_groups_in_words(v_groups), ''))
    || case when v_groups is null then '{}' else jsonb_build_object('groups', v_groups) end;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.explain from public;
