-- Limits that operators set and that are over, with what ended them, as the audit has it. Sweeps delete audit rows older than
-- `keepAuditFor`, so limits that were set before that are not here.
--
-- Which calls end a limit is the rule of _end_overrides and hold. To read those that were set last, order by id: then
-- it looks only at the calls after each, and for its key.
create or replace view :DISPATCH_POLICY_SCHEMA.past_limits as
select a.id, a.policy, a.gate, a.scope_key as key, a.detail -> 'where' as "where",
  a.detail -> 'set' as set, a.verb = 'hold' as hold, t.from_at as "from", e.at as ended_at, e.verb as ended_by_verb,
  e.by as ended_by, e.reason as end_reason, e.at <= t.from_at as never_began, a.by, a.reason
from audit a
cross join lateral (
  select coalesce((a.detail ->> 'from')::timestamptz, a.at) as from_at,
    coalesce((a.detail ->> 'until')::timestamptz, 'infinity') as until_at
) t
cross join lateral (select case when a.verb = 'hold' then coalesce(a.scope_key, '') else a.scope_key end as key) k
cross join lateral (
  select x.* from (
    select t.until_at as at, null::text as verb, null::text as by, null::text as reason, null::bigint as id
    union all
    select case when c.verb <> 'set_limit' or t.from_at >= n.from_at then c.at else n.from_at end, c.verb, c.by, c.reason, c.id
    from audit c
    cross join lateral (
      select coalesce((c.detail ->> 'from')::timestamptz, c.at) as from_at,
        coalesce((c.detail ->> 'until')::timestamptz, 'infinity') as until_at
    ) n
    where c.policy = a.policy and c.gate = a.gate and c.id > a.id
      and coalesce(c.scope_key, '') = coalesce(k.key, '')   -- by the index; which of the two it is, the last condition says
      and (c.detail -> 'where') is not distinct from (a.detail -> 'where')
      and case when c.verb = 'hold' then coalesce(c.scope_key, '') else c.scope_key end is not distinct from k.key
      and (c.verb = 'clear_limit' or (c.verb = 'set_limit' and t.from_at < n.until_at)
        or (c.verb = 'hold' and a.verb = 'hold' and n.until_at > t.until_at))
    union all
    select c.at, c.verb, c.by, c.reason, c.id from audit c
    where c.policy = a.policy and c.gate is null and c.id > a.id and c.verb = 'remove_policy'
  ) x order by x.at, x.id nulls first limit 1
) e
where a.verb in ('set_limit', 'hold') and a.gate is not null and e.at <= statement_timestamp();

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column past_limits.id is 'Of the call that set it, in the view audit.';
comment on column past_limits.policy is 'Name of the policy.';
comment on column past_limits.gate is 'Name of the gate.';
comment on column past_limits.key is 'The scope key; null: every key of the gate, or those of a context.';
comment on column past_limits."where" is
  'The values in the context of the partitions that it applied to; null: it did not go by context.';
comment on column past_limits.set is 'The numbers, by option, as in overrides; null: it was a hold of the key.';
comment on column past_limits.hold is 'Whether it was a hold of the key.';
comment on column past_limits."from" is 'When it began, or was to begin.';
comment on column past_limits.ended_at is 'When it ended. If it never began: when it was taken back.';
comment on column past_limits.ended_by_verb is
  'Which verb ended it: clear_limit, set_limit (another one took its place), hold (a longer one did) or remove_policy. Null: its end came.';
comment on column past_limits.ended_by is 'Who called that verb.';
comment on column past_limits.end_reason is 'Why they did.';
comment on column past_limits.never_began is 'Whether it was taken back before it began.';
comment on column past_limits.by is 'Who set it.';
comment on column past_limits.reason is 'Why they did.';
