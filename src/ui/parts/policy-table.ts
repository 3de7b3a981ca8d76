import type { PolicyStatus } from "../../operate/status.ts";
import type { Figures } from "../pages/figures.ts";
import { policyLink } from "./links.ts";
import { html, type Markup } from "./markup.ts";
import { table } from "./table.ts";
import { grouped, roughly } from "./words.ts";

/** Policies, each with what waits, what runs, and whether somebody looks after it. */
export function policyTable(policies: readonly PolicyStatus[], figures: Figures, base: string): Markup {
  const age = (name: string, policy: string) => {
    const seconds = figures.sum(name, { policy });
    return seconds === null ? null : roughly(seconds);
  };
  return table(
    "What waits, what runs, and when a pass last had something to do",
    policies,
    [
      { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
      { title: "State", cell: stateOf },
      { title: "Staged", isNumber: true, cell: ({ staged }) => grouped(staged) },
      { title: "Longest wait", isNumber: true, cell: ({ policy }) => age("longest_wait_seconds", policy) },
      {
        title: "Could go now",
        isNumber: true,
        cell: ({ policy }) => grouped(figures.sum("admissible_jobs", { policy })),
      },
      { title: "In flight", isNumber: true, cell: ({ inFlight }) => grouped(inFlight) },
      { title: "Partitions", isNumber: true, cell: ({ partitions }) => grouped(partitions) },
      {
        title: "Last pass",
        isNumber: true,
        cell: ({ policy }) => {
          const before = age("last_pass_age_seconds", policy);
          return before === null ? "none yet" : `${before} ago`;
        },
      },
      { title: "Version", isNumber: true, cell: ({ version }) => String(version) },
    ],
    html`No policy is declared. Start a worker with <code>dispatchPolicyPreset</code>.`,
  );
}

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
