import { type Explanation, explain } from "../../operate/explain.ts";
import { actionLinks } from "../parts/action-links.ts";
import { explanation } from "../parts/explanation.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { partitionLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { past } from "../parts/past.ts";
import { moment } from "../parts/words.ts";
import type { ActionName } from "./actions.ts";
import { asked, type Page } from "./visit.ts";

const ACTIONS_IN: Partial<Record<Explanation["state"], readonly ActionName[]>> = {
  staged: ["remove"],
  parked: ["remove"],
  admitted: ["cancel", "release-slots"],
  running: ["cancel", "release-slots"],
  failed: ["retry"],
};

/** One job: where it stands, why it waits, and what happened to it. */
export const job: Page = async (visit) => {
  const { looking, base, query, showPayloads } = visit;
  const id = asked(query, "id");
  if (id === undefined) return null;
  const it = await explain(looking, { id });
  if (it.state === "unknown") return null;
  const facts: readonly Fact[] = [
    ["task", it.taskIdentifier],
    [
      "partition",
      it.policy && typeof it.partition === "string" ? partitionLink(base, it.policy, it.partition) : null,
    ],
    ["due", it.runAt ? moment(it.runAt) : null],
    ["priority", it.priority],
    ["job key", it.jobKey ?? it.history?.jobKey],
    ["queue", it.queueName],
    ["attempts", it.attempts],
    ["admitted", it.admittedAt ? moment(it.admittedAt) : null],
    ["started", it.startedAt ? moment(it.startedAt) : null],
    ["worker", it.workerId],
    ["cancelled", it.cancelledAt ? moment(it.cancelledAt) : null],
    ["cancelled by", it.cancelledBy],
    ["error", it.error],
  ];
  const isParked = it.state === "parked"; // then it has two ids, and waits under that of staging
  const actions = actionLinks(visit, { ids: isParked ? it.id : id }, ACTIONS_IN[it.state] ?? []);
  return {
    title: `Job ${id}`,
    body: html`${explanation(it, visit, actions)}
<h2>The job</h2>
${factList(facts)}
${past(it.history)}
${showPayloads && it.payload !== undefined ? html`<h2>Payload</h2><pre>${JSON.stringify(it.payload, null, 2)}</pre>` : ""}`,
  };
};
