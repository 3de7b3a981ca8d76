import { limitInWords, numbersOf, OVER } from "../../operate/gate-words.ts";
import { limits as limitsSet, type Override } from "../../operate/limits.ts";
import { stops } from "../../operate/stops.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { limitedBy } from "../../operate/words.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import { badge } from "../parts/badge.ts";
import { pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { stopTable } from "../parts/stop-table.ts";
import { type Column, table } from "../parts/table.ts";
import { lasting, moment } from "../parts/words.ts";
import { type Gate, keyAsWritten } from "./form.ts";
import { pastLimits } from "./past-limits.ts";
import { asked, type Page, type Visit } from "./visit.ts";

/** Limits that operators set: in force, to come and over. And what they stopped. */
export const limits: Page = async (visit) => {
  const { looking, base, query } = visit;
  const definitions = await rowsOf<InForce>(looking, "definitions", "where in_force order by policy");
  const lines = linesOf(await limitsSet(looking), definitions);
  return {
    title: "Limits",
    body: html`${limitTable(visit, lines)}
${others(base, definitions)}
<h2>Stopped by name</h2>
${stopTable(await stops(looking), base, visit.rights.role === "operator")}
<h2>Limits that are over</h2>
${await pastLimits(looking, base, asked(query, "before"))}`,
  };
};

/** A row of the view `definitions`. */
interface InForce {
  readonly policy: string;
  readonly definition: PolicyDefinition;
}

/** What operators set for the same keys of a gate. */
interface Line {
  readonly gate: Gate | undefined;
  /** What counts now; else what counts first. */
  readonly first: Override;
  /** What counts after it. */
  readonly next: readonly Override[];
}

/** A hold goes before another limit of its key, which counts again at its end. */
function linesOf(found: readonly Override[], definitions: readonly InForce[]): readonly Line[] {
  const gateOf = ({ policy, gate }: Override) =>
    definitions.find((one) => one.policy === policy)?.definition.gates.find(({ name }) => name === gate);
  // a gate over the policy has one key, which a hold names
  const keyOf = (one: Override) => (gateOf(one)?.scope === "policy" ? null : one.key);
  const same = (one: Override) => JSON.stringify([one.policy, one.gate, keyOf(one), one.where]);
  return Object.values(Object.groupBy(found, same)).flatMap((all = []) => {
    const inForce = all.filter(({ since }) => since !== null);
    const first = inForce.find(({ hold }) => hold) ?? inForce[0] ?? all[0];
    return first ? [{ gate: gateOf(first), first, next: all.filter((one) => one !== first) }] : [];
  });
}

function limitTable(visit: Visit, lines: readonly Line[]): Markup {
  const { base } = visit;
  return table(
    "Gates with other numbers than their policies give them, now or later",
    lines,
    [
      { title: "Gate", cell: ({ first: { policy, gate } }) => html`${gate} of ${policyLink(base, policy)}` },
      {
        title: "For",
        cell: ({ gate, first }) =>
          html`${gate?.scope === "policy" ? OVER.policy : limitedBy(first)}${first.seen === false ? html` ${badge("no job yet", "warn")}` : ""}`,
      },
      {
        title: "Its own",
        cell: ({ gate }) =>
          gate ? html`<span class="whole">${numbersOf(gate.values, lasting)}</span>` : null,
      },
      { title: "Now", cell: ({ first }) => nowOf(first) },
      { title: "Since", cell: ({ first: { since } }) => moment(since) },
      { title: "Ends", cell: ({ first }) => (first.since === null ? null : endOf(first)) },
      { title: "By", cell: ({ first: { by } }) => by },
      { title: "Reason", cell: ({ first: { reason } }) => reason },
      { title: "Next", cell: nextOf },
      ...change(visit),
    ],
    "No limit differs from what the policies say.",
  );
}

function nowOf({ since, hold, override }: Override): Markup {
  if (since === null) return badge("to come");
  return html`${badge(hold ? "on hold" : "in force", hold ? "bad" : "good")} <span class="whole">${limitInWords(override)}</span>`;
}

function endOf({ until }: Override): Markup {
  return until ? moment(until) : html`when it is cleared`;
}

/** What is to come: of a line that has only such, all of it. */
function nextOf({ first, next }: Line): Markup | null {
  const toCome = first.since === null ? [first, ...next] : next;
  const says = toCome.map((one) => {
    const from = one.since === null ? one.from : first.until;
    const who = one === first ? "" : html`, by ${one.by}${one.reason === null ? "" : `: ${one.reason}`}`;
    return html`<div><span class="whole">${limitInWords(one.override)}</span> from ${moment(from)}${one.until ? html` until ${moment(one.until)}` : ""}${who}</div>`;
  });
  return says.length > 0 ? html`${says}` : null;
}

function change({ base, rights }: Visit): readonly Column<Line>[] {
  if (rights.role !== "operator") return [];
  const cell = ({ first: { policy, gate, key, where } }: Line) => {
    const reach = { policy, gate, where: where && JSON.stringify(where) };
    const of = `of ${gate} for ${limitedBy({ key, where })}`;
    return html`<a href="${pathTo(base, "/act/set-limit", { ...reach, key: keyAsWritten(key ?? undefined) })}" class="whole" aria-label="Change limit ${of}">Change limit…</a>
<a href="${pathTo(base, "/act/clear-limit", { ...reach, key })}" class="whole" aria-label="Clear limit ${of}">Clear limit</a>`;
  };
  return [{ title: "Change", cell }];
}

/** Where the numbers of all other gates stand, and how they are changed. */
function others(base: string, definitions: readonly InForce[]): Markup {
  if (definitions.length === 0) return none;
  const links = definitions.map(({ policy }, n) => html`${n > 0 ? ", " : ""}${policyLink(base, policy)}`);
  return html`<p>All other gates go by their policies' own numbers, which stand on the page of each: ${links}.</p>`;
}
