import { definePolicy } from "graphile-worker-dispatch-policy";
import { z } from "zod";

export const sendWelcome = definePolicy("send_welcome", {
  payload: z.object({ customer: z.string() }),
  partitionBy: "customer",
});
