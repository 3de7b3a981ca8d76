-- The time that a share of the counted jobs took at most, in seconds: the middle of its bucket, which is less than a tenth
-- from both ends. Null: none was counted.
--
--   p_counts   jobs by _bucket, as in the minutes
--
-- Its body is parsed once, when it is made, and so names the same operators under any search_path.
create or replace function _quantile(p_share float8, p_counts jsonb) returns float8
language sql immutable return (
  select 1.2::float8 ^ b.bucket / 1.1
  from (
    select c.bucket, sum(c.jobs) over (order by c.bucket) as up_to, sum(c.jobs) over () as all_jobs
    from (select e.key::int as bucket, e.value::float8 as jobs from jsonb_each_text(p_counts) e) c
  ) b
  where b.up_to >= p_share * b.all_jobs order by b.bucket limit 1);
