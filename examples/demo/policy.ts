import { definePolicy } from "../../src/index.ts";
import { POLICY } from "./limits.ts";

export interface Visit {
  /** Which endpoint to ask. */
  endpoint: number;
  /** Which of the storm's jobs this is. */
  job: number;
}

/** One partition per endpoint, each with a rate and a number at once of its own. */
export const visitEndpoint = definePolicy("visit_endpoint", {
  partitionBy: "endpoint",
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: POLICY.perSecond, per: "1 second", burst: POLICY.burst }),
    concurrency({ max: POLICY.atOnce }),
  ],
});
