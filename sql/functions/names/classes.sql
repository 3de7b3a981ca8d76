-- Classes: jobs of a lower class go first, and some places are kept for later ones.
--
-- A class is a factor of the weight, 2^-140 for each. Weights are within 2^-40 to 2^40, and what is admitted within 2^-10 to 2^40.
-- So the virtual times of a class, and its fair keys, lie between 2^(140 * class - 60) and 2^(140 * class + 80): behind all of
-- the class before it. A factor that is a power of two rounds nothing. Whatever is ordered by virtual time is so ordered by
-- class first, and by shares within it.

-- The class that a fair key or a virtual time is of. That of a weight is _class_of(1 / weight). The view partitions calls it: as
-- _shown_reason.
create or replace function _class_of(fair_key float8) returns int language sql immutable return
  case when fair_key < 1e21 then 0 else trunc((log(fair_key) + 18.06) / 42.1442)::int end;

-- The fair keys of a class begin here.
create or replace function _class_from(class int) returns float8 language sql immutable return
  power(2::float8, 140 * class - 60);

-- A weight as it was declared, without its class.
create or replace function _plain_weight(weight float8) returns float8 language sql immutable return
  weight * power(2::float8, 140 * _class_of(1 / weight));

-- How many of the next places of a limiter go to each class, from 1 on, while its jobs wait there. Null: none goes to any.
--
-- The places are numbered. Of the first k, floor(k * s) are of class 1 or later, where s is the sum of their shares. Of these, as
-- many as their part of that sum are of class 2 or later, and so on. So each place is of one class. Of any n places in a row, a
-- single class with the share s has at least floor(n * s), and one of several at least n * s - 2.
--
--   shares   see policies.class_shares
--   before   how many places there were before
create or replace function _class_places(shares float8[], before bigint, places float8) returns int[] language plpgsql immutable as $$
declare
  v_before float8 := before;   -- places of this class and later ones
  v_after float8 := before + greatest(least(places, 1000), 0);
  v_part float8 := 1;
  v_next_before float8;
  v_next_after float8;
  v_places int[] := '{}';
begin
  if shares is null then
    return null;
  end if;
  for v_class in 1 .. cardinality(shares) + 1 loop
    v_next_before := floor(v_before * coalesce(shares[v_class] / v_part, 0) + 1e-9);
    v_next_after := floor(v_after * coalesce(shares[v_class] / v_part, 0) + 1e-9);
    if v_class > 1 then
      v_places := v_places || (v_after - v_before - (v_next_after - v_next_before))::int;
    end if;
    v_before := v_next_before; v_after := v_next_after; v_part := shares[v_class];
  end loop;
  return v_places;
end
$$;

-- How many of the first places of a limiter are no later class's. Each parameter stands there once, so that it is inlined.
create or replace function _plain_places(shares float8[], places float8) returns float8 language sql immutable as $$
  select ceil(places * (1 - coalesce(shares[1], 0)) - 1e-9);
$$;
