/** Milliseconds, the same in every process of this machine. */
export const moment = (): number => performance.timeOrigin + performance.now();
