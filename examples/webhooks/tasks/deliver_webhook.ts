import { RetryAfter } from "graphile-worker-dispatch-policy";
import { deliverWebhook } from "../policies.ts";

/** Posts one event. A 429 holds the endpoint's partition, not the worker; any other error is retried by the back-off. */
export default deliverWebhook.task(async ({ url, event }) => {
  const response = await fetch(url, { method: "POST", body: JSON.stringify(event) });
  if (response.status === 429) {
    const seconds = Number(response.headers.get("retry-after") ?? 1);
    throw new RetryAfter(new Date(Date.now() + seconds * 1000), { reason: "429 from the endpoint" });
  }
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
});
