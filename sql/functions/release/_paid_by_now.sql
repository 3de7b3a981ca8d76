-- What a job has paid, once it was settled. A cost for all throttles replaces what was said of single ones before.
create or replace function _paid_by_now(paid jsonb, settled jsonb) returns jsonb language sql stable as $$
  select coalesce(paid, '{}') || settled || jsonb_build_object('gates',
    case when settled ? 'cost' then '{}' else coalesce(paid -> 'gates', '{}') end || coalesce(settled -> 'gates', '{}'));
$$;
