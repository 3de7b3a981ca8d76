-- Small arithmetic that several rooms share.

-- An exponentially decayed count, of jobs or of seconds. A time ahead of now counts as no age.
--
-- The age is clamped, and a tiny result becomes 0, because PostgreSQL raises an error if a product underflows. (What is left of
-- 1e-9 after the greatest age can still be divided by a weight.) The view partitions calls it: as _shown_reason.
create or replace function _decayed(admits float8, decayed_at timestamptz, half_life float8, now timestamptz)
returns float8 language sql immutable return
  case when half_life is null or admits < 1e-9 then 0 else
    admits * exp(greatest(least(-extract(epoch from now - decayed_at)::float8 * ln(2) / half_life, 0), -500))
  end;

-- The virtual time of a partition's next job. Partitions are claimed and called in its order.
--
-- What was admitted decays. So a key is too high some time later, until _refresh_keys works it out again. Of old admissions
-- a trace stays for long, and would let every new partition pass first: a thousandth of a job counts as nothing.
create or replace function _fair_key(policy policies, decayed float8, mean_work float8, weight float8, now timestamptz)
returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when (policy).half_life is null then extract(epoch from now)::float8
    else (case when decayed < 0.001 * coalesce(_work_of(policy, mean_work), 1) then 0 else decayed end
      + coalesce(_work_of(policy, mean_work), 1)) / weight end;
$$;

-- What a job counts for if fairness is by work: the seconds that its partition's jobs ran lately; one second if none has
-- ended yet. Null if each job counts for one.
create or replace function _work_of(policy policies, mean_work float8) returns float8 language sql immutable as $$
  select case when (policy).fair_by_work then greatest(coalesce(mean_work, 1), 0.001) end;
$$;

-- Partitions that have been in line since this time or longer may go before their turn, see _longest_first. Until then
-- fair order is exact.
create or replace function _long_since(now timestamptz) returns timestamptz language sql stable as $$
  select now - interval '10 seconds';
$$;

-- How many of the next `places` go to the partitions that have been in line for longest (_long_since): every tenth one that is no
-- later class's. In fair order alone, a partition would wait without end beside a stream of new partitions of a greater weight. If wait alone decided,
-- weights would count for nothing behind a long line.
create or replace function _longest_first(policy policies, admitted bigint, places float8)
returns int language sql immutable as $$
  select case when (policy).half_life is null then 0
    else floor(_plain_places((policy).class_shares, admitted + greatest(least(places, 1000), 0)) / 10)
      - floor(_plain_places((policy).class_shares, admitted) / 10) end::int;
$$;

-- The place of a partition without a due job: after the place of every job. The columns of `partitions` and
-- `arrivals` have it as their default. It is a query without parameters, so that PostgreSQL inlines it.
create or replace function _no_head()
returns table (priority smallint, run_at timestamptz, id bigint) language sql immutable rows 1 as $$
  select 32767::smallint, 'infinity'::timestamptz, 9223372036854775807;
$$;

-- As many jobs go the small way, and as many partitions. Of 40 jobs of 40 partitions the large way makes no more work.
create or replace function _few() returns int language sql immutable as $$ select 20 $$;

-- The halves of a range of places, the second half first, for a list of work that is taken from its end. If the number of
-- places is odd, the first half has one more. A range of one place has no halves: do not call it for one.
create or replace function _halves(p_from int, p_to int) returns jsonb language sql stable as $$
  select jsonb_build_array(
    jsonb_build_array((p_from + p_to) / 2 + 1, p_to), jsonb_build_array(p_from, (p_from + p_to) / 2));
$$;

-- In which portion of 8 MB a row is, by the bytes of the rows before it: 0 for the first ones. Whoever reads payloads, contexts
-- or errors of many rows into one array, or into the memory of a process, reads one portion at a time. It has at least one row,
-- whatever that one weighs.
create or replace function _portion(p_bytes_before numeric) returns int language sql immutable as $$
  select trunc(coalesce(p_bytes_before, 0) / 8000000)::int;
$$;

-- A time of so many milliseconds in seconds, in whole microseconds. Null: the number is no length of time. A process may send
-- any number, and one that is too great or too small for `real` would fail the release.
create or replace function _seconds(ms float8) returns real language sql immutable as $$
  select case when ms between 0 and 1e12 then (trunc(ms * 1000) / 1e6)::real end;
$$;

-- The bucket in which a wait, a lag or a run is counted: bucket b has the times above 1.1^(b-1) up to 1.1^b seconds, as in
-- DDSketch (Masson, Rim and Lee, 2019). Less than a microsecond counts as one. Rows that were folded before keep their counts, so
-- another base needs a migration of them. It stands here and in _quantile, and nowhere else.
create or replace function _bucket(seconds float8) returns int language sql immutable
return ceil(ln(greatest(seconds, 1e-6)) / ln(1.1::float8))::int;

-- The time that a share of the counted jobs took at most, in seconds: the middle of its bucket, which is less than a twentieth
-- from both ends, and never more than the longest of them took. Null: none was counted.
--
--   p_counts   jobs by _bucket. Of several minutes or policies: the sums by bucket, because quantiles cannot be averaged
--   p_longest  how long the job took that took longest. Null: not known
--
-- Its body is parsed once, when it is made, and so names the same operators under any search_path.
create or replace function _quantile(p_share float8, p_counts jsonb, p_longest float8) returns float8
language sql immutable return (
  select least(1.1::float8 ^ b.bucket / 1.05, p_longest)
  from (
    select c.bucket, sum(c.jobs) over (order by c.bucket) as up_to, sum(c.jobs) over () as all_jobs
    from (select e.key::int as bucket, e.value::float8 as jobs from jsonb_each_text(p_counts) e) c
  ) b
  where b.up_to >= p_share * b.all_jobs order by b.bucket limit 1);

-- Whether a run of so many seconds is far longer than those of its policy: over a minute, and ten times as long as 95 of 100 of
-- them (`usual`, see _usual_seconds). Not if that is not known.
create or replace function _is_long_run(seconds float8, usual float8) returns boolean language sql immutable as $$
  select coalesce(usual > 0 and seconds > greatest(10 * usual, 60), false);
$$;

-- Two objects of counts or seconds, added by key.
create or replace function _sum_by_key(a jsonb, b jsonb) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(x.key, x.n), '{}') from (
    select e.key, sum(e.value::numeric) as n from (
      select * from jsonb_each_text(a) union all select * from jsonb_each_text(b)
    ) e group by e.key
  ) x;
$$;

-- Objects of counts, added by key.
create or replace aggregate _sum_of_counts(jsonb) (
  sfunc = _sum_by_key,
  stype = jsonb,
  initcond = '{}'
);

-- The breadth of a scope, as a number: a partition's gates run from narrow to broad.
create or replace function _breadth(scope text) returns smallint language sql immutable as $$
  select (case scope when 'partition' then 0 when 'key' then 1 when 'policy' then 2 end)::smallint;
$$;
