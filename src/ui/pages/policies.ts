import { status } from "../../operate/status.ts";
import { html } from "../parts/markup.ts";
import { policyTable } from "../parts/policy-table.ts";
import { undeclaredTable } from "../parts/undeclared-table.ts";
import { figuresNow } from "./figures.ts";
import type { Page } from "./visit.ts";

/** All policies, and the jobs of those that nobody declared. */
export const policies: Page = async ({ looking, base }) => {
  const { policies: found, undeclared } = await status(looking);
  return {
    title: "Policies",
    body: html`${await policyTable(looking, found, await figuresNow(looking), base)}
${undeclaredTable(undeclared, base)}`,
  };
};
