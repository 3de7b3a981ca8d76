-- Jobs of open job groups that have not ended for good.
create or replace view :DISPATCH_POLICY_SCHEMA.group_jobs as
select m.group_id, m.staged_id as id, m.job_id from :DISPATCH_POLICY_SCHEMA._private_group_jobs m;

comment on column :DISPATCH_POLICY_SCHEMA.group_jobs.group_id is 'The group.';
comment on column :DISPATCH_POLICY_SCHEMA.group_jobs.id is
  'The id that the job has in staging; of one that Graphile Worker has past its policy, that one''s.';
comment on column :DISPATCH_POLICY_SCHEMA.group_jobs.job_id is
  'Graphile Worker''s id, if the job failed before or is there past its policy.';
