-- Whether an admission of ours put a job of Graphile Worker's into its row. If the row was made after the admission in its
-- flag, or has another key than the admitted job, somebody copied the flag.
create or replace function :DISPATCH_POLICY_SCHEMA._is_ours(flags jsonb, created_at timestamptz, job_key text)
returns boolean language sql immutable as $$
  select :DISPATCH_POLICY_SCHEMA._staged_id_of(flags) is not null and coalesce((
    select extract(epoch from created_at) * 1000000 <= x.admission::numeric
      -- whoever replaces a job that runs takes its key off
      and (job_key is null or x.key_mark = :DISPATCH_POLICY_SCHEMA._key_mark(job_key))
    from (
      select split_part(t.rest, '#', 1) as admission, split_part(t.rest, '.', 2) as key_mark
      from (
        select split_part(split_part(split_part(flags::text, '"dispatch_policy:', 2), '"', 1), '@', 2) as rest
      ) t
    ) x
    where x.admission ~ '^[0-9]{1,18}$'), false);
$$;
