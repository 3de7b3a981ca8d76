-- Lists of counts, added place by place.
create or replace aggregate :DISPATCH_POLICY_SCHEMA._sum_of_counts(bigint[]) (
  sfunc = :DISPATCH_POLICY_SCHEMA._add_counts,
  stype = bigint[],
  initcond = '{}'
);
