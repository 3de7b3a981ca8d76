import type { Task } from "graphile-worker";
import type { PolicyPayload } from "graphile-worker-dispatch-policy";
import type { deliverWebhook } from "../policies.ts";

/** Has no policy and runs as always. The job it adds has one, and is staged. */
const orderPaid: Task = async (payload, helpers) => {
  const { customer, url, order } = payload as { customer: string; url: string; order: number };
  const delivery: PolicyPayload<typeof deliverWebhook> = {
    customer,
    url,
    event: { id: order, type: "order.paid" },
  };
  await helpers.addJob("deliver_webhook", delivery);
};

export default orderPaid;
