-- For how many seconds a partition has admitted jobs at a steady pace, by how much of their count has decayed. `p_jobs` is its
-- decayed count, and `p_total` is how many it ever admitted. Null: the count does not tell.
--
-- At a steady pace the part that is left after x mean lifetimes is (1 - e^-x) / x. Newton's method goes down to x from above.
-- Jobs from a time before only make the result longer.
create or replace function _counted_seconds(p_jobs float8, p_total float8, p_half_life float8)
returns float8 language plpgsql immutable as $$
declare
  v_left float8 := p_jobs / nullif(p_total, 0);
  v_x float8;
  v_gone float8;
begin
  if v_left is null or p_half_life is null or v_left <= 0.002 or v_left >= 0.9999 then
    return null;
  end if;
  v_x := least(1 / v_left, 2 * (1 / v_left - 1)); -- no less than the result
  for v_nth in 1 .. 4 loop
    v_gone := exp(-v_x);
    v_x := v_x - (1 - v_gone - v_left * v_x) / (v_gone - v_left);
  end loop;
  return v_x * p_half_life / ln(2);
end
$$;
