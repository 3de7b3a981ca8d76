import { some } from "../../counted.ts";
import type { OperateContext } from "../../operate/call.ts";
import { parameter, rowsOf } from "../../operate/view-rows.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import type { Fact } from "../parts/facts.ts";
import { html, type Markup } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { moment } from "../parts/words.ts";

/** A row of the view `definitions`. */
export interface Definition {
  readonly version: number;
  readonly definition: PolicyDefinition;
  readonly inForce: boolean;
  readonly inForceAt: Date | null;
  readonly declaredAt: Date;
  readonly host: string | null;
  readonly pid: number | null;
  readonly liveWorkers: number;
  readonly differs: readonly Difference[];
}

interface Difference {
  readonly option: string;
  /** In the definition in force; null: it has none. */
  readonly now: unknown;
  /** In this one; null: it has none. */
  readonly here: unknown;
}

const KNOWN = `where policy = ${parameter(1, "text")} and (in_force or live_workers > 0)
  order by in_force desc, live_workers desc, declared_at desc`;

/** The definition in force, and after it the others that live workers have. */
export function definitionsOf(looking: OperateContext, policy: string): Promise<readonly Definition[]> {
  return rowsOf<Definition>(looking, "definitions", KNOWN, [policy]);
}

/** Since when the definition in force is, by whom, and who has it. */
export function declaredFacts(definitions: readonly Definition[]): readonly Fact[] {
  const inForce = definitions.find((one) => one.inForce);
  if (!inForce) return [];
  const others = definitions.filter((one) => !one.inForce);
  return [
    ["definition", html`version ${inForce.version}, in force since ${moment(inForce.inForceAt)}`],
    ["declared by", html`${declarer(inForce)}`],
    ["workers that have it", some(inForce.liveWorkers, "live worker pool")],
    [
      "workers that have another one",
      others.length === 0 ? null : html`<a class="bad" href="#definitions">${others.map(who).join("; ")}</a>`,
    ],
  ];
}

function who({ version, liveWorkers }: Definition): string {
  return `version ${version}: ${some(liveWorkers, "live worker pool")}`;
}

function declarer({ host, pid }: Definition): string {
  return host === null ? "a process that did not say where it runs" : `${host}, process ${pid}`;
}

/** What live workers have instead, beside what is in force. Nothing if all have the same. */
export function differenceTables(definitions: readonly Definition[]): Markup {
  const inForce = definitions.find((one) => one.inForce);
  const others = definitions.filter((one) => !one.inForce);
  if (!inForce || others.length === 0) return html``;
  return html`<h2 id="definitions">Definitions that differ</h2>
<p>Live workers have more than one definition. The highest version that one has is in force. Of equal versions it is the one whose worker started last. Jobs that other processes add bring the limits of theirs.</p>
${others.map((other) => differenceTable(inForce, other))}`;
}

function differenceTable(inForce: Definition, other: Definition): Markup {
  return table(
    `Version ${other.version} of ${declarer(other)}, declared ${at(other.declaredAt)}`,
    other.differs,
    [
      { title: "What differs", cell: ({ option }) => option },
      { title: `In force (${who(inForce)})`, cell: ({ now }) => valueText(now) },
      { title: `Here (${who(other)})`, cell: ({ here }) => valueText(here) },
    ],
    "Nothing that is shown differs.",
  );
}

function at(date: Date): string {
  return date.toISOString().slice(0, 19).replace("T", " ");
}

function valueText(value: unknown): Markup {
  return value === null || value === undefined ? html`–` : html`<code>${JSON.stringify(value)}</code>`;
}
