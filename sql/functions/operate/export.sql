-- Reads staged jobs with their payloads: by id, or all of a policy or partition. Nothing changes but the audit. A page has
-- at most `count` jobs, and ends after 8 MB of payloads and errors. For the next page give the last id as `after`, until there is none.
--
-- The way back is add_jobs: columns have the names of Graphile Worker's job_spec.
--
--   select * from dispatch_policy.export('fetch_endpoint', partition => 'ep1');
create or replace function :DISPATCH_POLICY_SCHEMA.export(
  policy text default null, partition text default null, ids bigint[] default null, after bigint default 0,
  count int default 500, reason text default null, by text default null
) returns setof :DISPATCH_POLICY_SCHEMA.exported_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_rows :DISPATCH_POLICY_SCHEMA.exported_job[];
begin
  if export.ids is null and export.policy is null then
    raise exception 'dispatch_policy: export: expected ids or a policy, got neither' using errcode = 'DPARG';
  elsif export.partition is not null and export.policy is null then
    raise exception 'dispatch_policy: export: partition is %, expected a policy with it, got none',
      quote_literal(export.partition) using errcode = 'DPARG';
  elsif export.count is null or export.count < 1 then
    raise exception 'dispatch_policy: export: count is %, expected 1 or more', coalesce(export.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  if export.policy is not null then
    perform _policy(export.policy);
  end if;
  if export.partition is not null then
    v_ids := array(
      select s.id from _staged_in(export.policy, export.partition) s
      where s.id > coalesce(export.after, 0) and (export.ids is null or s.id = any(export.ids))
      order by s.id limit export.count);
  else
    v_ids := array(
      select s.id from _staged_of(export.policy) s
      where s.id > coalesce(export.after, 0) and (export.ids is null or s.id = any(export.ids))
      order by s.id limit export.count);
  end if;
  v_rows := array(select e from _exported(v_ids) e);
  if cardinality(v_rows) > 0 then
    perform _audit('export', export.policy, export.partition, null, null,
      jsonb_build_object('ids', export.ids, 'after', export.after), export.reason, export.by, cardinality(v_rows), 0);
  end if;
  return query select (u).* from unnest(v_rows) u;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.export from public;
