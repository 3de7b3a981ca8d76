-- Two objects of counts, added by key.
create or replace function _sum_counts(a jsonb, b jsonb) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(x.key, x.n), '{}') from (
    select e.key, sum(e.value::bigint) as n from (
      select * from jsonb_each_text(a) union all select * from jsonb_each_text(b)
    ) e group by e.key
  ) x;
$$;
