import type { OperateContext } from "../../operate/call.ts";
import type { PolicyStatus } from "../../operate/status.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import type { Figures, Shown } from "../pages/figures.ts";
import { badge } from "./badge.ts";
import { pathTo, policyLink } from "./links.ts";
import { html, type Markup } from "./markup.ts";
import { HOUR, stepsOf } from "./period.ts";
import { spark } from "./spark.ts";
import { table } from "./table.ts";
import { grouped, roughly } from "./words.ts";

/** A row of the view `minutes`. */
interface Admitted {
  readonly policy: string;
  readonly minute: Date;
  readonly admitted: string;
}

/** Policies, each with what waits, what runs, and whether somebody looks after it. */
export async function policyTable(
  looking: OperateContext,
  policies: readonly PolicyStatus[],
  figures: Figures,
  base: string,
): Promise<Markup> {
  const admitted = await rowsOf<Admitted>(looking, "minutes", "where minute > now() - interval '1 hour'");
  const age = (name: Shown, policy: string) => {
    const seconds = figures.sum(name, { policy });
    return seconds === null ? null : roughly(seconds);
  };
  return table(
    "What waits, what runs, and when a pass last had something to do",
    policies,
    [
      { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
      { title: "State", cell: stateBadge },
      { title: "Staged", isNumber: true, cell: ({ staged }) => grouped(staged) },
      {
        title: "Oldest due",
        isNumber: true,
        cell: ({ oldestDue }) =>
          oldestDue &&
          html`<a href="${pathTo(base, "/job", { id: oldestDue.id })}">${roughly(oldestDue.ageSeconds)}</a>`,
      },
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
      { title: "Admitted, last hour", cell: ({ policy }) => admittedLately(admitted, policy) },
      { title: "Version", isNumber: true, cell: ({ version }) => String(version) },
    ],
    html`No policy is declared. Start a worker with <code>dispatchPolicyPreset</code>.`,
  );
}

/** What was admitted in each minute of the last hour. */
function admittedLately(minutes: readonly Admitted[], policy: string): Markup | null {
  const its = new Map(
    minutes.filter((one) => one.policy === policy).map((one) => [one.minute.getTime(), Number(one.admitted)]),
  );
  const counts = stepsOf(HOUR).map((at) => its.get(at.getTime()) ?? null);
  const most = Math.max(...counts.map((count) => count ?? 0));
  return most === 0 ? null : spark(counts, `at most ${grouped(most)} admitted in a minute of the last hour`);
}

/** With a sign if nothing is admitted, or if live workers do not agree. */
export function stateBadge(it: PolicyStatus): Markup {
  const isOn = it.enabled && !it.paused && !it.orphaned && it.liveDefinitions <= 1;
  return badge(stateOf(it), isOn ? "good" : "bad");
}

/** In words, what is not as usual first. */
function stateOf({
  enabled,
  paused,
  pausedWithAll,
  orphaned,
  liveDefinitions,
  resolving,
  sharedBy,
}: PolicyStatus): string {
  const states = [
    enabled ? "" : "off",
    paused ? (pausedWithAll ? "paused with all" : "paused") : "",
    orphaned ? "no worker" : "",
    liveDefinitions > 1 ? `${liveDefinitions} definitions` : "",
    resolving ? "limits are worked out again" : "",
  ].filter((state) => state !== "");
  return states.join(", ") || (sharedBy === null ? "on" : "shared limit");
}
