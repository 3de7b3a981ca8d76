/** A row of a policy's minutes in which nothing happened. */
export const QUIET_MINUTE = {
  ...{
    passes: 0,
    pass_seconds: 0,
    staged: 0,
    admitted: 0,
    denied: {},
    quarantined: 0,
    dropped: 0,
    expired: 0,
  },
  ...{ delayed: 0, succeeded: 0, failed: 0, waits: {}, wait_seconds: 0, lags: {}, lag_seconds: 0 },
  ...{ runs: {}, run_seconds: 0 },
};
