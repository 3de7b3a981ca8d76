-- The history of a job as json, by its staged id or Graphile Worker's; null: there is none.
create or replace function _history_of(p_id bigint) returns jsonb language sql stable as $$
  select to_jsonb(h) - 'staged_id' - 'policy_id' || jsonb_build_object(
    'id', h.staged_id::text, 'job_id', h.job_id::text, 'policy', p.name,
    'waited', _waited_by('reason', h.waited),
    'waited_by_gate', _waited_by('gate', h.waited))
  from history h
  join policies p on p.id = h.policy_id
  where h.staged_id = p_id or h.job_id = p_id
  order by h.staged_id <> p_id, h.last_admitted_at desc nulls last limit 1;
$$;
