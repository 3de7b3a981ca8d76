-- Whether an admission of ours put a job of Graphile Worker's into its row. If the row was made after the admission in its
-- flag, somebody copied the flag.
create or replace function :DISPATCH_POLICY_SCHEMA._is_ours(flags jsonb, created_at timestamptz) returns boolean
language sql immutable as $$
  select :DISPATCH_POLICY_SCHEMA._staged_id_of(flags) is not null and coalesce((
    select extract(epoch from created_at) * 1000000 <= x.admission::numeric
    from (
      select split_part(split_part(split_part(split_part(flags::text, '"dispatch_policy:', 2), '"', 1), '@', 2), '#', 1)
        as admission
    ) x
    where x.admission ~ '^[0-9]{1,18}$'), false);
$$;
