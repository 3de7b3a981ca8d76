-- Job groups that are open: how many of their jobs have ended, how, and how many are left. A group goes when its callback is
-- added.
create or replace view :DISPATCH_POLICY_SCHEMA.groups as
select g.id, g.callback ->> 'identifier' as callback, g.created_at, g.total, g.jobs_left, g.succeeded, g.failed, g.removed,
  g.dropped, g.replaced, g.gone, g.error, p.name as policy, m.staged_id as oldest_job_id
from groups g
left join policy_tasks t on t.task_identifier = g.callback ->> 'identifier'
left join policies p on p.id = t.policy_id
left join lateral (   -- one look at the index for each group
  select min(x.staged_id) as staged_id from group_jobs x where x.group_id = g.id
) m on true;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column groups.id is 'Its number, which the callback''s payload has as _group.id.';
comment on column groups.callback is 'Task of the callback.';
comment on column groups.created_at is 'When its jobs were added.';
comment on column groups.total is 'How many jobs the call had.';
comment on column groups.jobs_left is 'How many have not ended for good.';
comment on column groups.succeeded is 'How many have succeeded.';
comment on column groups.failed is 'How many have failed for good.';
comment on column groups.removed is 'How many an operator removed before they ran.';
comment on column groups.dropped is 'How many were dropped, or were not added at all.';
comment on column groups.replaced is 'How many lost their place to a newer job of their key.';
comment on column groups.gone is 'How many ended where nobody saw how.';
comment on column groups.error is
  'Why the callback could not be added; the next sweep tries again. Null: it was not tried.';
comment on column groups.policy is 'Policy of the callback''s task; null: it has none.';
comment on column groups.oldest_job_id is
  'The oldest job that is left, by its id in group_jobs; null: none is.';
