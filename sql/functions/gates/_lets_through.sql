-- Whether a throttle lets a job of this cost go: it has as many tokens, or it is full. So a job dearer than a full bucket
-- does not wait for ever; it leaves the bucket in debt.
--
-- `capacity` infinite: only tokens count, for jobs that go behind another one. It is an expression, so that PostgreSQL
-- inlines it.
create or replace function _lets_through(tokens float8, capacity float8, cost float8)
returns boolean language sql immutable as $$
  select _is_full(tokens, least(cost, capacity));
$$;
