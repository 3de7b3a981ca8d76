-- Partitions whose jobs name different keys (_mixed_keys), and of which nobody has told yet. The caller tells.
create or replace function _tell_mixed_keys(p_policy text)
returns table (partition text, gate text, before text, after text) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update partitions q set mixed_told = true
  where q.id = any(array(
    select x.id from policies p
    join partitions x
      on x.policy_id = p.id and not x.mixed_told and x.mixed_told is not null
    where p.name = p_policy order by x.id limit 1000 for no key update of x skip locked))
  returning q.key, q.mixed_keys ->> 'gate', q.mixed_keys ->> 'before', q.mixed_keys ->> 'after';
$$;
