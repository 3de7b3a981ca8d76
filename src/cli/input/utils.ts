import { makePolicyUtils, type PolicyUtils } from "../../index.ts";
import type { Place } from "./place.ts";

/** Utils, which set the schemas up first. They load Graphile Worker, so only commands that need that import them. */
export function openUtils({ connectionString, schema, policySchema }: Place): Promise<PolicyUtils> {
  return makePolicyUtils({ connectionString, schema, policySchema });
}
