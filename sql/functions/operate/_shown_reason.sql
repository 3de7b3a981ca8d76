-- Why a partition waits, as the views show it: its policy or it is paused, or held or its breaker is open, whichever ends
-- later, or the last pass denied it.
--
-- It reads the statement's time: with clock_timestamp() the planner would work out each view whole before it sorts and limits.
--
-- It has no `set search_path`, because the planner can put it into a view only without. Its body is parsed once, when it is
-- made, and so names the same operators under any search_path.
create or replace function _shown_reason(
  policy_paused_until timestamptz, paused_until timestamptz, held_until timestamptz, breaker_until timestamptz,
  denied_reason text
) returns text language sql stable return
  case when greatest(policy_paused_until, paused_until) > statement_timestamp() then 'paused'
    when greatest(held_until, breaker_until) > statement_timestamp()
      then case when breaker_until > held_until then 'breaker_open' else 'held' end
    else denied_reason end;
