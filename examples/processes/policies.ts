import { definePolicy } from "graphile-worker-dispatch-policy";

export interface Report {
  readonly tenant: string;
  readonly region: "eu" | "us";
}

/**
 * At most 4 reports at once, over all processes. Each region is a shard, with a tick loop of its own in one of the
 * processes. Both shards share the limit, because its scope is the policy.
 */
export const makeReport = definePolicy("make_report", {
  context: (payload: unknown) => ({ region: (payload as Report).region }),
  partitionBy: "tenant",
  shardBy: (ctx) => ctx.region,
  gates: ({ concurrency }) => [concurrency({ scope: "policy", max: 4 })],
});
