-- Raises if job groups are open: without this schema their callbacks would never come. The message names up to five.
create or replace function _refuse_open_groups(p_verb text) returns void language plpgsql volatile as $$
declare
  v_groups text;
  v_count int;
begin
  select string_agg(g.name, ', ' order by g.id) filter (where g.n <= 5), count(*) into v_groups, v_count
  from (
    select x.id, row_number() over (order by x.id) as n,
      format('%s (%s jobs left, then %s)', x.id, x.jobs_left, x.callback ->> 'identifier') as name
    from groups x) g;
  if v_count > 0 then
    raise exception 'dispatch_policy: %: open job groups: %, expected none: %; let workers end their jobs, or remove the jobs and sweep, or force it: then their callbacks never come',
      p_verb, v_count, v_groups using errcode = 'DPUSE';
  end if;
end
$$;
