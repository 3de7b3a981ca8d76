import { definePolicy } from "graphile-worker-dispatch-policy";
import { z } from "zod";

/** What the partner's pages promise each account. The partner may refuse all the same. */
export const sendOrder = definePolicy("send_order", {
  payload: z.object({ account: z.string(), order: z.number() }),
  partitionBy: "account",
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: 20, per: "1 second", smooth: true }),
    concurrency({ max: 1 }),
  ],
  refundAttempt: true, // "come back later" uses up no attempt
  runTimeout: "10 seconds", // a partner that does not answer fails the attempt
});
