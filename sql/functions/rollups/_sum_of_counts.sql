-- Objects of counts, added by key.
create or replace aggregate :DISPATCH_POLICY_SCHEMA._sum_of_counts(jsonb) (
  sfunc = :DISPATCH_POLICY_SCHEMA._sum_counts,
  stype = jsonb,
  initcond = '{}'
);
