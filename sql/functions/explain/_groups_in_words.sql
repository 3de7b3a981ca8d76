-- What _groups_of returns, in sentences that follow another one.
create or replace function _groups_in_words(p_groups jsonb) returns text language sql immutable as $$
  select coalesce(string_agg(format(' It belongs to job group %s, of which %s of %s jobs are left.',
    g ->> 'id', g ->> 'jobs_left', g ->> 'total'), ''), '')
  from jsonb_array_elements(p_groups) g;
$$;
