/** How jobs end. */
export const OUTCOMES = ["succeeded", "failed", "removed", "dropped", "replaced", "gone"] as const;

/** How a job ended: see {@link JobHistory}. */
export type Outcome = (typeof OUTCOMES)[number];
