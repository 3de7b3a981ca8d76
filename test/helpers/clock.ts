/** How far two readings of one clock may differ because the times of jobs are cut to milliseconds. */
export const ROUNDED_MS = 2;
