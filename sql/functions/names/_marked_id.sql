-- The least partition id with this mark, if the digit is 0, and the greatest, if it is f; null: it is no mark. With both, the
-- planner finds the partitions by their ids. It has no `set search_path`, as _shown_reason.
create or replace function _marked_id(mark text, digit text) returns uuid language sql immutable return
  case when mark ~ '^[0-9a-f]{8}$' then (mark || translate('-0000-0000-0000-000000000000', '0', digit))::uuid end;
