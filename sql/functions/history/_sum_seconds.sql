-- Adds up seconds by reason.
create or replace function _sum_seconds(a jsonb, b jsonb) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(s.reason, s.seconds), '{}') from (
    select e.key as reason, sum(e.value::numeric) as seconds
    from (select * from jsonb_each_text(a) union all select * from jsonb_each_text(b)) e group by e.key
  ) s;
$$;
