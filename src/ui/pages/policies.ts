import { status } from "../../operate/status.ts";
import { policyTable } from "../parts/policy-table.ts";
import { figuresNow } from "./figures.ts";
import type { Page } from "./visit.ts";

/** All policies. */
export const policies: Page = async ({ looking, base }) => {
  const { policies: found } = await status(looking);
  return { title: "Policies", body: policyTable(found, await figuresNow(looking), base) };
};
