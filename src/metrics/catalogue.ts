// Every metric: its name without the prefix, its type, and what it means. docs/production.md#the-metrics lists them.

export const PREFIX = "dispatch_policy_";

/** What Prometheus calls them. */
export type MetricType = "gauge" | "counter" | "summary";

const gauge = (help: string) => ({ type: "gauge", help }) as const;
const counter = (help: string) => ({ type: "counter", help }) as const;
const summary = (help: string) => ({ type: "summary", help }) as const;

/** In the order of the output. */
export const METRICS: Readonly<Record<string, { readonly type: MetricType; readonly help: string }>> = {
  policy_info: gauge("1 for each policy, with its version."),
  policy_enabled: gauge("0: the policy is switched off, and no gate applies."),
  policy_paused: gauge("1: the policy is paused."),
  policy_shares_limit: gauge(
    "1 for each shared limit that a policy names. The limit's own figures have its name as policy.",
  ),
  policy_has_worker: gauge("0: no live worker has the policy."),
  staged_jobs: gauge("Jobs that wait in staging, by what their partition waits for."),
  waiting_partitions: gauge("Partitions with staged jobs, by what they wait for."),
  oldest_due_age_seconds: gauge("For how long the oldest due job in staging has been due."),
  in_flight_jobs: gauge("Jobs that were admitted and not released yet."),
  admissible_jobs: gauge(
    "Due jobs that the gates would let go now, if workers were free. Scale workers by it.",
  ),
  last_pass_age_seconds: gauge("Seconds since the last pass that claimed a partition."),
  limiter_utilization_ratio: gauge("Jobs in flight by the limit, of the fullest key of a gate."),
  full_limiters: gauge("Keys of a gate whose slots are all occupied."),
  limiters_over_limit: gauge(
    "Keys of a gate with more jobs in flight than the limit, since it was lowered or jobs were forced.",
  ),
  adaptive_limit: gauge("The lowest limit that an adaptive gate has found for a key."),
  limiters_at_minimum: gauge("Keys of an adaptive gate whose limit is as low as it may be."),
  staged_total: counter("Jobs that were added, and retries."),
  admitted_total: counter("Jobs that were admitted."),
  shadow_denied_total: counter("Jobs that went although a shadow gate had no room."),
  left_to_pass_total: counter("How often jobs were left to the next pass, or to the long way, by reason."),
  finished_total: counter("Runs that ended, by outcome. A failed one may be tried again."),
  quarantined_total: counter("Jobs that were quarantined with an error."),
  dropped_total: counter(
    "Jobs that were dropped, by maxPending, whenBusy or uniqueFor, or because they expired.",
  ),
  expired_total: counter("Of these, jobs that expired before they were admitted."),
  delayed_total: counter("How many times a job was delayed, by whenBusy."),
  ended_elsewhere_total: counter("Jobs that ended in workers without this package."),
  wait_seconds: summary("From when a job was due to its admission."),
  queue_lag_seconds: summary("From a job's admission, or run_at if later, to its start."),
  run_seconds: summary("How long a run took."),
  pass_duration_seconds: summary("How long passes took that claimed a partition."),
  workers: gauge("Live worker pools."),
  worker_slots: gauge("Jobs that live worker pools can run at once."),
  sweep_repairs_total: counter("What sweeps repaired, by kind. It stands still in a healthy run."),
  open_groups: gauge("Job groups whose callback has not been added yet."),
  oldest_group_age_seconds: gauge("For how long the oldest open job group has been open; 0: none is."),
  notification_queue_usage_ratio: gauge("How full PostgreSQL's queue of notifications is."),
};
