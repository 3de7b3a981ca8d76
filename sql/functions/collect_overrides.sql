-- Removes overrides that were over a day ago. Until then they tell what a bucket that nobody looked at since gained while
-- they held; after a day it counts as if they had not been.
create or replace function :DISPATCH_POLICY_SCHEMA._collect_overrides(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  delete from :DISPATCH_POLICY_SCHEMA._private_overrides o where o.until_at < p_now - interval '1 day';
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;
