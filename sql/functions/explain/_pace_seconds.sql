-- In how many seconds the last of so many jobs starts at a measured pace: at least, and at most. `p_jobs` and `p_jobs_most`
-- are with the job itself. `p_evidence` is how many random arrivals would tell the pace as surely.
--
-- The starts ahead, and the count behind the pace, are taken for as noisy as random arrivals. 1.75 deviations to each side
-- are some 92 % of a normal distribution. Jobs of one partition share their luck, so of 200 estimates fewer may be right.
create or replace function _pace_seconds(
  p_jobs int, p_jobs_most int, p_least_per_s float8, p_most_per_s float8, p_evidence float8,
  out least_s float8, out most_s float8
) language plpgsql immutable as $$
begin
  least_s := p_jobs / p_most_per_s * greatest(1 - 1.75 * sqrt(1.0 / p_jobs + 1.0 / p_evidence), 0);
  most_s := p_jobs_most / p_least_per_s * (1 + 1.75 * sqrt(1.0 / p_jobs_most + 1.0 / p_evidence)) + 0.5;
end
$$;
