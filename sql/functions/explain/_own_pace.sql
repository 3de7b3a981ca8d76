-- At what pace a partition's jobs were admitted lately: at least, and at most. `jobs` is their decayed count, `evidence` the
-- number of random arrivals that tell a pace as surely. All are null if the policy counts none (no half-life), or fewer than three.
--
-- The count is of a steady pace only after some half-lives. It is known since when the partition has had jobs, and how
-- many it ever admitted. At most none of the counted went before that. At least all of the others did, just before.
--
-- A partition that has just got its jobs starts slowly: it is routed, and workers begin. That time would make the pace too
-- low, and so the estimate too late. So it is left out if all admissions are younger: see _counted_seconds.
--
-- The first jobs of a cap go at once, and fill its slots. That says nothing of how fast slots come free. So the jobs that
-- still have theirs do not count for the pace at least. `p_filled` is how many of the counted these are, 0 without a cap.
create or replace function _own_pace(
  p_policy policies, p_partition partitions,
  p_busy_since timestamptz, p_filled float8, p_now timestamptz, out jobs float8, out evidence float8, out least_per_s float8, out most_per_s float8
) language plpgsql stable as $$
declare
  v_half_life float8 := (p_policy).half_life;
  v_work float8 := _work_of(p_policy, (p_partition).mean_work);
  v_jobs float8 := _decayed(
    (p_partition).decayed_admits, (p_partition).decayed_at, v_half_life, p_now) / coalesce(v_work, 1);
  v_busy float8 := least(
    greatest(extract(epoch from p_now - coalesce(p_busy_since, p_now))::float8, 0),
    case when v_work is null then
      _counted_seconds(v_jobs, (p_partition).admitted_total, v_half_life) end);
  v_left float8 := exp(-least(v_busy * ln(2) / v_half_life, 500)); -- of a job that was admitted when it became busy
  v_counted float8; -- by how much a pace of one job a second since then raises the count, less what it leaves to those before
begin
  if v_jobs >= 3 and v_jobs - p_filled >= 1 then
    jobs := v_jobs;
    -- (sum of weights)^2 / sum of squared weights, if it was busy for that long: twice the count in the end, at first the count
    evidence := v_jobs * 2 / (1 + v_left);
    least_per_s := v_jobs * ln(2) / v_half_life;
    most_per_s := least_per_s / greatest(1 - v_left, 0.001);
    if v_busy > 0.05 * v_half_life then
      v_counted := v_half_life / ln(2) * (1 - v_left) - v_left * v_busy;
      least_per_s := least(greatest(
        least_per_s, (v_jobs - v_left * (p_partition).admitted_total) / v_counted), most_per_s);
    end if;
    least_per_s := least_per_s * (1 - p_filled / v_jobs);
  end if;
end
$$;
