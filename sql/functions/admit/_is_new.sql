-- Whether a partition's next job goes before those that wait in Graphile Worker already: nothing of it was admitted for a second.
create or replace function _is_new(
  policy policies, admitted_at timestamptz, now timestamptz
) returns boolean language sql stable as $$
  select (policy).half_life is not null and admitted_at < now - interval '1 second';
$$;
