/** What every endpoint's server allows: a bucket of 10 that refills at 10 per second, and 5 requests at once. */
export const SERVER = { bucket: 10, perSecond: 10, atOnce: 5 } as const;

/**
 * What the policy asks for. The rate is the server's own; the bucket is half of it, since requests start a little
 * after they are admitted. At most 5 jobs are admitted and not yet started, so in any t seconds at most
 * 5 + (5 + 10 t) requests start: the server's bucket of 10 is never overdrawn, however slow the machine.
 */
export const POLICY = { burst: 5, perSecond: 10, atOnce: 5 } as const;
