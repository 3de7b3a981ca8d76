import { definePolicy, fixed } from "graphile-worker-dispatch-policy";
import { z } from "zod";

const report = z.object({ account: z.string(), month: z.number() });

/** The partner takes 50 requests a second, over all accounts. */
export const downloadReport = definePolicy("download_report", {
  payload: report,
  partitionBy: "account",
  gates: ({ throttle }) => [throttle({ scope: "policy", rate: 50, per: "1 second", smooth: true })],
  backoff: fixed("100 milliseconds"),
});

/** Rendering takes much memory: two at once, however fast the downloads are. Accounts share that fairly. */
export const renderReport = definePolicy("render_report", {
  payload: report,
  partitionBy: "account",
  gates: ({ concurrency }) => [concurrency({ scope: "policy", max: 2 })],
});
