-- What a job has waited for, as the history keeps it, by reason or by gate: seconds by name. See _record_reasons.
--
--   p_by   reason, or gate: what has no gate is left out
create or replace function :DISPATCH_POLICY_SCHEMA._waited_by(p_by text, waited jsonb) returns jsonb language sql immutable
set search_path = pg_catalog, pg_temp as $$
  select coalesce(jsonb_object_agg(s.name, s.seconds), '{}') from (
    select k.name, sum(e.value::numeric) as seconds
    from jsonb_each_text(waited) e
    cross join lateral (
      select case when p_by = 'reason' then split_part(e.key, ':', 1)
        when strpos(e.key, ':') > 0 then substr(e.key, strpos(e.key, ':') + 1) end as name
    ) k
    where k.name is not null group by k.name
  ) s;
$$;
