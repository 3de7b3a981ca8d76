-- Until when a bucket is filled, once it is looked at. A mark less than a second ahead of now stays, because moving it
-- back would bring its tokens twice. A mark further ahead is a wrong clock's.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_mark(refilled_at timestamptz, now timestamptz)
returns timestamptz language sql stable as $$   -- immutable it would not be inlined: 15 us a call, not 0.1
  select case when refilled_at > now + interval '1 second' then now else greatest(refilled_at, now) end;
$$;
