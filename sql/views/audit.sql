-- What operators did, and why: one row for each verb that was called. Sweeps delete rows older than `keepAuditFor`.
create or replace view :DISPATCH_POLICY_SCHEMA.audit as
select a.* from audit a;

comment on column :DISPATCH_POLICY_SCHEMA.audit.id is 'Order of the calls.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.at is 'When.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.verb is 'Which verb: pause, resume, hold, set_limit and so on.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.policy is 'Of which policy; null: of all, or of a job.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.partition is 'Key of the partition; null: not of one partition.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.gate is 'Name of the gate, if it was about one.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.scope_key is 'Scope key of the gate; null: all keys.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.detail is 'What else was asked for.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.reason is 'Why, as the caller says.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.by is 'Who, as the caller says; else the session''s user.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.matched is 'How many things it was meant for.';
comment on column :DISPATCH_POLICY_SCHEMA.audit.changed is 'How many of them it changed.';
