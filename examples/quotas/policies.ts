import { definePolicy } from "graphile-worker-dispatch-policy";

/**
 * A partner that allows 5 requests in any second, 100 in any minute, and a quota for each calendar month. A job goes when
 * all three have room. A window is a little longer than the partner's, because starts follow admissions a little later.
 */
export const lookUp = definePolicy("look_up", {
  partitionBy: "account",
  gates: ({ throttle }) => [
    throttle({ name: "second", rate: 5, per: "1100 ms", window: "sliding" }),
    throttle({ name: "minute", rate: 100, per: "61 seconds", window: "sliding" }),
    // 12 shows it at once: a real quota has some thousands
    throttle({ name: "month", rate: 12, per: "1 month", window: "calendar", timeZone: "America/New_York" }),
  ],
});
