-- Records that the crontab's tick has ticked these policies. It skips a policy that another session has locked.
create or replace function _crontab_ticked(p_policies text[]) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update policies p set crontab_ticked_at = clock_timestamp()
  where p.id = any(array(
    select x.id from policies x where x.name = any(p_policies)
    order by x.id for no key update skip locked));
$$;
