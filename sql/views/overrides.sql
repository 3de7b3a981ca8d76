-- Limits that were set instead of the policies' own, those in force and those to come.
create or replace view :DISPATCH_POLICY_SCHEMA.overrides as
select p.name as policy, o.gate, o.scope_key as key,
  o.set - 'shadow' as set,   -- the hold of a shadow gate's key has it
  nullif(o.from_at, '-infinity') as "from",
  nullif(o.until_at, 'infinity') as until, o.set_by as by, o.reason,
  -- the key as a condition of its own, so that each is one look at the index
  case when o.context is not null then null when o.scope_key is null then exists (
      select from limiters l where l.policy_id = o.policy_id and l.gate = o.gate)
    else exists (
      select from limiters l
      where l.policy_id = o.policy_id and l.gate = o.gate and l.scope_key = o.scope_key) end as seen,
  o.context as "where", o.is_hold as hold,
  case when o.from_at <= statement_timestamp() then greatest(o.from_at, o.set_at) end as since
from overrides o
join policies p on p.id = o.policy_id
where o.until_at > statement_timestamp() and not o.taken_back;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column overrides.policy is 'Name of the policy.';
comment on column overrides.gate is 'Name of the gate.';
comment on column overrides.key is 'The scope key; null: every key of the gate, or those of a context.';
comment on column overrides.set is
  'The numbers, by option: rate, per (seconds), burst, max and so on.';
comment on column overrides."from" is 'Start; null: when it was set.';
comment on column overrides.until is 'End; null: until it is cleared.';
comment on column overrides.by is 'Who set it.';
comment on column overrides.reason is 'Why they did.';
comment on column overrides.seen is
  'False: no job has had the key yet, or it is misspelt. The limit waits for the first. Null: it goes by context.';
comment on column overrides."where" is
  'The values in the context of the partitions that it applies to; null: it does not go by context.';
comment on column overrides.hold is
  'Whether it is a hold of the key. At its end the other limits of the key count again.';
comment on column overrides.since is 'Since when it is in force; null: it is to come.';
