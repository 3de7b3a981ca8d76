-- The definitions of each policy: the one in force, and the others that processes have declared. Of those others, one that no
-- worker pool has goes a day after its declaration.
--
-- Which is in force, workers decide: the newest one that a live pool has, by version, then by the pool that started last. A
-- pool that stops counts no more, although its last jobs still run. _declare_policy and _sweep_definitions see to it.
create or replace view :DISPATCH_POLICY_SCHEMA.definitions as
select p.name as policy, d.hash, (d.definition ->> 'version')::int as version, d.definition,
  d.hash = p.definition_hash as in_force, d.in_force_at, d.declared_at, d.host, d.pid,
  (select count(*)::int from workers w
    where w.stale_at > statement_timestamp() and w.definitions #>> array[p.name, 'hash'] = d.hash) as live_workers,
  case when d.hash = p.definition_hash then '[]'
    else _definition_differences(p.definition, d.definition) end as differs,
  d.hash is not distinct from n.hash as newest_live
from definitions d
join policies p on p.id = d.policy_id
left join lateral (
  select x.hash from workers w
  join definitions x on x.policy_id = p.id and x.hash = w.definitions #>> array[p.name, 'hash']
  where w.stale_at > clock_timestamp() and w.slots > 0
  order by (x.definition ->> 'version')::int desc, w.started_at desc limit 1) n on true;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column definitions.policy is 'Name of the policy.';
comment on column definitions.hash is 'Hash of the definition, by which workers name it.';
comment on column definitions.version is 'Option version.';
comment on column definitions.definition is 'The whole declaration.';
comment on column definitions.in_force is 'Whether jobs go by it.';
comment on column definitions.in_force_at is 'When it came into force; null: it is not.';
comment on column definitions.declared_at is
  'When the process named here declared it. Of the one in force: the process that put it in force. Of another one: the last.';
comment on column definitions.host is 'Name of that process''s machine; null: not known.';
comment on column definitions.pid is 'Id of that process on the machine.';
comment on column definitions.live_workers is 'How many live worker pools have this definition.';
comment on column definitions.differs is
  'In what it differs from the one in force: a list of { option, now, here }. now is the value in force; null: it has none.';
comment on column definitions.newest_live is
  'Whether it is the newest that a live worker pool has. If it is not in force, the next sweep puts it there.';
