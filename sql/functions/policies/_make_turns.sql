-- Makes a policy's turns.
create or replace function _make_turns(p_policy_id int, p_strict boolean)
returns void language sql volatile as $$
  insert into turns (policy_id, step)
  select p_policy_id, s.step from unnest(array['route', 'admit', 'limits', 'adopt']) s (step)
  on conflict do nothing;
  insert into turns (policy_id, step, place)
  select p_policy_id, 'pending', n from generate_series(0, 1024) n
  where p_strict and not exists (
    select from turns u where u.policy_id = p_policy_id and u.step = 'pending')
  on conflict do nothing;
$$;
