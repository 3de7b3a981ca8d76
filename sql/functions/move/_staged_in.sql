-- The staged jobs of a partition, also of one that no router knows yet. Some have only the key that their caller gave, and
-- the rest is still to be worked out. PostgreSQL inlines this query, as that of _staged_of.
create or replace function _staged_in(p_policy text, p_key text)
returns setof staged_jobs language sql stable as $$
  select s.* from staged_jobs s
  where s.partition_id = _partition_id(p_policy, p_key)
    or (s.partition_id is null and s.id in (
      select k.staged_id from keyless_jobs k
      where k.policy = p_policy and k.partition_key = p_key));
$$;
