-- What a job has waited for, as the history keeps it, by reason or by gate: a row for each entry. A reason or a gate may have
-- several. See _record_reasons.
--
-- It is a query without plpgsql and fixes no search_path, so that PostgreSQL puts it into that of gate_waits. Called for each
-- of 10,000 jobs, it took 150 ms.
--
--   p_by   reason, or gate: what has no gate is left out
create or replace function _waits_by(p_by text, waited jsonb)
returns table (name text, seconds numeric) language sql immutable as $$
  select k.name, e.value::numeric
  from jsonb_each_text(waited) e
  cross join lateral (
    select case when p_by = 'reason' then split_part(e.key, ':', 1)
      when strpos(e.key, ':') > 0 then substr(e.key, strpos(e.key, ':') + 1) end as name
  ) k
  where k.name is not null;
$$;
