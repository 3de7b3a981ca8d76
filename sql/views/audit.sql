-- What operators did, and why: one row for each verb that was called. Sweeps delete rows older than `keepAuditFor`.
create or replace view :DISPATCH_POLICY_SCHEMA.audit as
select a.* from audit a;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column audit.id is 'Order of the calls.';
comment on column audit.at is 'When.';
comment on column audit.verb is 'Which verb: pause, resume, hold, set_limit and so on.';
comment on column audit.policy is 'Of which policy; null: of all, or of a job.';
comment on column audit.partition is 'Key of the partition; null: not of one partition.';
comment on column audit.gate is 'Name of the gate, if it was about one.';
comment on column audit.scope_key is 'Scope key of the gate; null: all keys.';
comment on column audit.detail is 'What else was asked for.';
comment on column audit.reason is 'Why, as the caller says.';
comment on column audit.by is 'Who, as the caller says; else the session''s user.';
comment on column audit.matched is 'How many things it was meant for.';
comment on column audit.changed is 'How many of them it changed.';
comment on column audit.form is 'Which form of the admin pages it came from, its step and call; null: from none. The same form, sent again, does nothing.';
