import { type PolicyStatus, status } from "../../operate/status.ts";
import { policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { grouped } from "../parts/words.ts";
import type { Page } from "./visit.ts";

/** All policies. */
export const policies: Page = async ({ looking, base }) => {
  const { policies: found } = await status(looking);
  return {
    title: "Policies",
    body: table(
      "Policies that were declared",
      found,
      [
        { title: "Policy", cell: (one) => policyLink(base, one.policy) },
        { title: "State", cell: stateOf },
        { title: "Version", isNumber: true, cell: (one) => String(one.version) },
        { title: "Staged", isNumber: true, cell: (one) => grouped(one.staged) },
        { title: "In flight", isNumber: true, cell: (one) => grouped(one.inFlight) },
        { title: "Partitions", isNumber: true, cell: (one) => grouped(one.partitions) },
      ],
      html`No policy is declared. Start a worker with <code>dispatchPolicyPreset</code>.`,
    ),
  };
};

/** In words, what is not as usual first. */
export function stateOf({
  enabled,
  paused,
  pausedWithAll,
  orphaned,
  liveDefinitions,
  resolving,
}: PolicyStatus): string {
  const states = [
    enabled ? "" : "off",
    paused ? (pausedWithAll ? "paused with all" : "paused") : "",
    orphaned ? "no worker" : "",
    liveDefinitions > 1 ? `${liveDefinitions} definitions` : "",
    resolving ? "limits are worked out again" : "",
  ].filter((state) => state !== "");
  return states.join(", ") || "on";
}
