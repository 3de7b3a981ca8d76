-- Whether an admission of ours put a job of Graphile Worker's into its row. If the row was made after the flag, or has
-- another key than the admitted job, somebody copied the flag.
--
-- A row is as old as the transaction that made it. That may be younger than the admission's own: the admission waited, and
-- found the row under its job's key. So the flag of a job with a key also has the time at which it was written.
create or replace function _is_ours(flags jsonb, created_at timestamptz, job_key text)
returns boolean language sql immutable as $$
  select _staged_id_of(flags) is not null and coalesce((
    select extract(epoch from created_at) * 1000000 <= coalesce(nullif(split_part(t.marks, '.', 3), ''), t.admission)::numeric
      -- whoever replaces a job that runs takes its key off
      and (job_key is null or split_part(t.marks, '.', 2) = _key_mark(job_key))
    from (
      select split_part(r.rest, '#', 1) as admission, split_part(r.rest, '#', 2) as marks
      from (select split_part(_flag_text(flags), '@', 2) as rest) r
    ) t
    where t.admission ~ '^[0-9]{1,18}$' and split_part(t.marks, '.', 3) ~ '^[0-9]{0,18}$'), false);
$$;
