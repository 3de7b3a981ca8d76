-- The breadth of a scope, as a number: a partition's gates run from narrow to broad.
create or replace function _breadth(scope text) returns smallint language sql immutable as $$
  select (case scope when 'partition' then 0 when 'key' then 1 when 'policy' then 2 end)::smallint;
$$;
