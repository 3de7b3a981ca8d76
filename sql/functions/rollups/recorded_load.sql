-- What diff replays: the load of the last `p_seconds`, and the policy, its partitions and the operators' limits as of now.
-- Null if the policy records no load.
--
--   partitions   "waiting": jobs that are staged and due. "row": its row in `load`; the zero uuid has the others
--   runs         seconds that runs of the same time took, those of all partitions together: quantiles. Empty: none ended
create or replace function :DISPATCH_POLICY_SCHEMA.recorded_load(p_policy text, p_seconds float8) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy policies := _policy(p_policy);
  v_now timestamptz := statement_timestamp();
  v_from timestamptz := date_trunc('minute', v_now - make_interval(secs => least(p_seconds, v_policy.load_kept_for)));
begin
  if v_policy.load_kept_for is null then
    return null;
  end if;
  return jsonb_build_object(
    'now', v_now, 'from', v_from, 'definition', v_policy.definition,
    'settings', jsonb_build_object(
      'halfLifeSeconds', v_policy.half_life, 'admissionBatchSize', v_policy.batch_size,
      'tickAdmissionBudget', v_policy.admission_budget),
    'runs', (
      select coalesce(jsonb_agg(_quantile((n - 0.5) / 101, r.counts) order by n), '[]')
      from (
        select _sum_of_counts(m.runs) as counts from minutes m
        where m.policy_id = v_policy.id and m.minute >= v_from
      ) r cross join generate_series(1, 101) n where r.counts <> '{}'),
    'load', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'minute', l.minute, 'row', l.partition_id, 'seconds', l.seconds, 'came', l.came, 'cost', l.cost,
        'admitted', l.admitted, 'ended', l.ended, 'runSeconds', l.run_seconds) order by l.minute, l.partition_id), '[]')
      from load l where l.policy_id = v_policy.id and l.minute >= v_from),
    'partitions', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'row', q.id, 'key', q.key, 'shard', q.shard, 'context', q.context, 'weight', q.weight, 'limits', q.limits,
        'waiting', q.staged + coalesce((
          select sum(a.jobs) from arrivals a
          where a.policy = v_policy.name and a.partition_id = q.id), 0)) order by q.id), '[]')
      from partitions q
      where q.policy_id = v_policy.id and q.id = any(array(
        select l.partition_id from load l
        where l.policy_id = v_policy.id and l.minute >= v_from
        union
        (select w.id from partitions w
        where w.policy_id = v_policy.id and w.staged > 0 order by w.staged desc limit 100)))),
    'overrides', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'gate', o.gate, 'key', o.scope_key, 'where', o.context, 'set', o.set, 'from', nullif(o.from_at, '-infinity'),
        'until', nullif(o.until_at, 'infinity'), 'setAt', o.set_at) order by o.id), '[]')
      from overrides o
      where o.policy_id = v_policy.id and o.until_at > v_from));
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.recorded_load from public;
