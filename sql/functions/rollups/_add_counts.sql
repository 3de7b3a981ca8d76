-- Two lists of counts, added place by place.
create or replace function :DISPATCH_POLICY_SCHEMA._add_counts(a bigint[], b bigint[]) returns bigint[]
language sql immutable as $$
  select array(select coalesce(x.a, 0) + coalesce(x.b, 0) from unnest(a, b) with ordinality x (a, b, n) order by x.n);
$$;
