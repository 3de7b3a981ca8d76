-- What a job has paid, after another one of its key was admitted in its row. `pays`: it has paid its cost now, and else what
-- the one before has. Who returns tokens to a window later must not take them off a later spending than this one. So the
-- time of the first payment stays. So does it that one was admitted past its gates: the other may have paid the difference.
create or replace function _paid_again(
  before in_flight_jobs, paid jsonb, pays boolean
) returns jsonb language sql stable as $$
  select coalesce(before.paid, '{}') - case when pays then '{cost,gates}'::text[] else '{}' end || coalesce(paid, '{}')
    || jsonb_build_object('at', coalesce(before.paid -> 'at', to_jsonb(before.admitted_at)));
$$;
