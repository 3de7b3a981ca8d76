-- Which of these jobs fit into the policy's backlog.
--
--   p_pending_in_all   how many jobs are staged for the policy; null: its backlog has no bound over all of it
--   kept               the jobs that may be staged, json; null: none
--   full_ones          a row for each partition that has no room, or too many jobs:
--     { id, key, pending, dropped: of these jobs, not kept, over: of these, because the partition itself is full,
--       excess: how many of its older jobs must go, added: of these, kept }; null: none
--   fresh              how many of the kept ones take no other's place
create or replace function _fit(
  p_policy policies, p_partitions json, p_jobs json, p_mode text, p_pending_in_all int,
  out kept json, out full_ones jsonb, out fresh int
) language plpgsql as $$
declare
  v_max int := (p_policy).max_pending;
  v_max_in_all int := (p_policy).max_pending_in_all;
  v_oldest boolean := (p_policy).when_full = 'drop_oldest';
begin
  with part as materialized (
    select (k.ordinality - 1)::int as p, k.key, i.id,
      -- There may be more than the bound, from before it was set or by an overshoot. At most 1,000 a call are dropped.
      case when v_max is not null then _pending_of(
        i.id, case when v_oldest then v_max + 1000 else v_max end) end as pending
    from rows from (json_to_recordset(p_partitions) as (key text)) with ordinality k
    cross join lateral (select _partition_id((p_policy).name, k.key) as id) i
  ),
  job as materialized (
    select j.ordinality as place, j.value, (j.value ->> 'p')::int as p,
      j.value ->> 'jobKey' is not null and case when p_mode = 'unsafe_dedupe'
        then exists (select from _jobs_of_key(j.value ->> 'jobKey'))
        else exists (
          select from staged_jobs s
          where s.job_key = j.value ->> 'jobKey'
            and not _is_of_another(p_policy, s.task_identifier)) end as replaces
    from json_array_elements(p_jobs) with ordinality j
  ),
  -- if the oldest are dropped, the newest are kept
  in_partition as materialized (
    select j.*, k.id, k.key, k.pending,
      row_number() over (partition by j.p order by case when v_oldest then -j.place else j.place end)
        <= coalesce(case when k.id is null then null when v_oldest then v_max else v_max - k.pending end, 2147483647)
        as fits
    from job j left join part k on k.p = j.p where not j.replaces
  ),
  in_all as materialized (
    select i.*, i.fits and count(*) filter (where i.fits) over (order by case when v_oldest then -i.place else i.place end)
      <= coalesce(case when v_oldest then v_max_in_all else v_max_in_all - p_pending_in_all end, 2147483647) as kept
    from in_partition i
  ),
  tally as (
    select i.id, i.key, i.pending,
      count(*) filter (where i.kept) as added, count(*) filter (where not i.kept) as dropped, count(*) filter (where not i.fits) as over,
      case when v_oldest then greatest(i.pending + count(*) filter (where i.kept) - v_max, 0) else 0 end as excess
    from in_all i group by i.id, i.key, i.pending
  )
  select
    (select json_agg(j.value order by j.place) from job j
      where j.replaces or j.place in (select i.place from in_all i where i.kept)),
    (select jsonb_agg(to_jsonb(t)) from tally t where t.dropped > 0 or t.excess > 0),
    (select count(*) from in_all i where i.kept)
  into kept, full_ones, fresh;
end
$$;
