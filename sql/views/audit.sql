-- What operators did, and why: one row for each verb that was called.
create or replace view :DISPATCH_POLICY_SCHEMA.audit as
select a.* from :DISPATCH_POLICY_SCHEMA._private_audit a;
