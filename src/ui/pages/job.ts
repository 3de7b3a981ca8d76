import { MissingGrantError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import { ask, type Explanation, explain } from "../../operate/explain.ts";
import { explanation } from "../parts/explanation.ts";
import { type Fact, factList } from "../parts/facts.ts";
import { groupLink, partitionLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { past } from "../parts/past.ts";
import { shownPayload } from "../parts/payload.ts";
import { moment } from "../parts/words.ts";
import { traceLink } from "../trace-url.ts";
import type { ActionName } from "./form.ts";
import { asked, type Page } from "./visit.ts";

const ACTIONS_IN: Partial<Record<Explanation["state"], readonly ActionName[]>> = {
  staged: ["remove"],
  parked: ["remove"],
  admitted: ["cancel", "release-slots"],
  running: ["cancel", "release-slots"],
};

/** One job: where it stands, why it waits, and what happened to it. */
export const job: Page = async (visit) => {
  const { looking, base, query, showPayloads } = visit;
  const id = asked(query, "id");
  if (id === undefined) return null;
  const it = await explained(looking, id);
  if (it.state === "unknown") return null;
  const { engine, withPgClient } = looking;
  const payload = showPayloads ? await withPgClient((client) => engine.payloadText(client, id)) : undefined;
  const facts: readonly Fact[] = [
    ["task", it.taskIdentifier],
    [
      "partition",
      it.policy && typeof it.partition === "string" ? partitionLink(base, it.policy, it.partition) : null,
    ],
    ["due", it.runAt ? moment(it.runAt) : null],
    ["priority", it.priority],
    ["job key", it.jobKey ?? it.history?.jobKey],
    ...(it.groups ?? []).map(({ id: group }): Fact => ["job group", groupLink(base, group)]),
    ["queue", it.queueName],
    ["attempts", it.attempts],
    ["admitted", it.admittedAt ? moment(it.admittedAt) : null],
    ["started", it.startedAt ? moment(it.startedAt) : null],
    ["worker", it.workerId],
    ["cancelled", it.cancelledAt ? moment(it.cancelledAt) : null],
    ["cancelled by", it.cancelledBy],
    ["error", it.error],
    ["trace", it.traceId ? traceLink(it.traceId, visit.traceUrl) : null],
  ];
  const isParked = it.state === "parked"; // then it has two ids, and waits under that of staging
  const actions = { target: { ids: isParked ? it.id : id }, names: ACTIONS_IN[it.state] ?? [] };
  return {
    title: `Job ${id}`,
    trail: [["Jobs", `${base}/jobs`]],
    body: html`${explanation(it, visit, actions)}
<h2>The job</h2>
${factList(facts)}
${past(it.history)}
${payload === undefined ? "" : html`<h2>Payload</h2><pre>${shownPayload(payload)}</pre>`}`,
  };
};

/** A role that only looks may not read staged jobs whole, because of their payloads. Then the page has less. */
async function explained(looking: OperateContext, id: string): Promise<Explanation> {
  return explain(looking, { id }).catch((error: Error) => {
    if (error instanceof MissingGrantError) return ask(looking, { id });
    throw error;
  });
}
