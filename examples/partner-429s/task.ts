import { RetryAfter, rateLimitFromHeaders } from "graphile-worker-dispatch-policy";
import { sendOrder } from "./policies.ts";

/** Sends one order. A 429 holds the account's partition, and nothing else. Other errors are retried by the back-off. */
export function makeSendOrder(partner: string) {
  return sendOrder.task(async ({ account, order }, { abortSignal }) => {
    const response = await fetch(`${partner}/accounts/${account}/orders/${order}`, {
      method: "PUT", // the same order again changes nothing: a job may run twice
      signal: abortSignal ?? null,
    });
    if (response.status === 429) {
      // reads Retry-After as seconds or as a date, and the RateLimit headers; null if none makes sense
      const { retryAfter } = rateLimitFromHeaders(response.headers);
      throw new RetryAfter(retryAfter ?? "30 seconds", { reason: "429 from the partner" });
    }
    if (!response.ok) throw new Error(`the partner answered ${response.status} to order ${order}`);
  });
}
