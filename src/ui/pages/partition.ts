import { explain } from "../../operate/explain.ts";
import { actionLinks } from "../parts/action-links.ts";
import { explanation } from "../parts/explanation.ts";
import { html } from "../parts/markup.ts";
import { grouped, moment } from "../parts/words.ts";
import { asked, type Page } from "./visit.ts";

/** One partition: why it waits, gate by gate. */
export const partition: Page = async (visit) => {
  const { looking, query } = visit;
  const [policy, key] = [asked(query, "policy"), query.get("partition")];
  if (policy === undefined || key === null) return null;
  const it = await explain(looking, { policy, partition: key });
  if (it.state === "unknown") return null;
  const facts: readonly (readonly [string, unknown])[] = [
    ["staged", grouped(it.staged)],
    ["in flight", grouped(it.inFlight)],
    ["admitted since it was made", grouped(it.admittedTotal)],
    ["weight", grouped(it.weight)],
    ["shard", it.shard],
    ["context", JSON.stringify(it.context ?? {})],
    ["paused", it.paused ? (it.pausedUntil ? moment(it.pausedUntil) : "until resume") : "no"],
    ["made", moment(it.createdAt)],
  ];
  const isStopped = it.stop !== null;
  const target = { policy, partition: key };
  const actions = actionLinks(visit, target, [
    isStopped ? "resume" : "pause",
    "hold",
    "admit",
    "set-limit",
    "retry",
    "remove",
  ]);
  return {
    title: key === "" ? "(empty key)" : key,
    body: html`${explanation(it, visit, actions)}
<h2>The partition</h2>
<dl class="facts">${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${value as string}</dd>`)}</dl>`,
  };
};
