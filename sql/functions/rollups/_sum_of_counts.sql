-- Objects of counts, added by key.
create or replace aggregate _sum_of_counts(jsonb) (
  sfunc = _sum_counts,
  stype = jsonb,
  initcond = '{}'
);
