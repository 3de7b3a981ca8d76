// What a form has done, on the page that it leads to. The address names the form, and the audit says what that did. So an
// address cannot claim what was not done, and every process can tell.
import { some } from "../../counted.ts";
import type { AuditRow } from "../../operate/view-rows.ts";
import { timeOf } from "../../timestamp.ts";
import { pathTo } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { grouped } from "../parts/words.ts";
import { ACTIONS, durationOf } from "./actions.ts";
import { type ActionName, keyAsWritten, type Values } from "./form.ts";
import { textsOf } from "./limit-actions.ts";
import { LASTS_MS, recordedBy, tokenIn } from "./one-time.ts";
import { same } from "./same.ts";
import type { Visit } from "./visit.ts";

/** For how long: then who loads the page again, or finds its address somewhere, gets the page alone. */
const SHOWN_MS = 600_000;
/** A command with more ids is nothing to copy. */
const MOST_IDS = 20;

/** Undefined: the address names no form, or one of long ago. */
export async function noticeFor({ base, looking, query, rights }: Visit): Promise<Markup | undefined> {
  const token = tokenIn(query.get("did"));
  if (!token) return undefined;
  const now = (await looking.withPgClient(looking.engine.now)).getTime();
  const rows = await recordedBy(looking, token);
  const [first] = rows;
  if (!first) return now - token.madeAt.getTime() < LASTS_MS + SHOWN_MS ? NOTHING : undefined;
  const name = first.verb.replaceAll("_", "-") as ActionName;
  if (!Object.hasOwn(ACTIONS, name) || now - (rows.at(-1) ?? first).at.getTime() > SHOWN_MS) return undefined;
  const result = totalOf(rows, name);
  const isDone = result.changed > 0 || result.stored;
  const { by, reason } = first;
  if (new Set(rows.map(({ policy, partition }) => JSON.stringify([policy, partition]))).size > 1)
    return forMany(base, name, rows, token.text, rights.role === "operator");
  const values = valuesOf(rows);
  const undo = isDone && rights.role === "operator" ? undoLinks(base, name, first, values, now) : [];
  const says = `${ACTIONS[name].did(values, result)}${isDone || result.matched > 0 ? "" : ` ${MISSED}`} By ${by}`;
  return html`<div class="notice"><p class="${isDone ? "good" : ""}" role="status">${says}${undo.map((link) => html` · ${link}`)}</p>
${isToCopy(rows) ? same(name, { values, reason: reason ?? "", by, schema: looking.engine.schemaName }) : none}</div>`;
}

/** What was done to ticked partitions, one after the other. */
function forMany(
  base: string,
  name: ActionName,
  rows: readonly AuditRow[],
  token: string,
  mayUndo: boolean,
): Markup {
  const [first] = rows as readonly [AuditRow];
  const { inverse, label } = ACTIONS[name];
  const changed = rows.filter((row) => row.changed > 0 || row.matched === 0).length;
  const undo =
    mayUndo && inverse && changed > 0
      ? html` · <a href="${pathTo(base, `/ticked/${inverse}`, { of: token, reason: `Undo: ${first.reason ?? name}` })}">Undo</a>`
      : none;
  return html`<div class="notice"><p class="${changed > 0 ? "good" : ""}" role="status">${label.replace("…", "")}: done for ${grouped(changed)} of ${some(rows.length, "partition")}. By ${first.by}${undo}</p></div>`;
}

const MISSED = "Nothing matched: what it was meant for may have ended, or somebody has changed it meanwhile.";
const NOTHING = html`<div class="notice"><p role="status">Nothing has changed. ${MISSED}</p></div>`;

/** What the verbs keep in the audit, by the names of SQL. Times are texts. */
interface Detail {
  readonly ids?: readonly number[] | null;
  readonly job_id?: number;
  readonly count?: number;
  readonly running?: number;
  readonly error?: string;
  readonly to_policy?: string;
  readonly to_partition?: string | null;
  readonly from?: string | null;
  readonly until?: string | null;
  readonly where?: object;
  readonly set?: Readonly<Record<string, unknown>>;
  readonly was?: readonly Was[];
}

/** A limit that a verb has ended. */
interface Was {
  readonly set: Readonly<Record<string, unknown>>;
  readonly from?: string | null;
  readonly until?: string | null;
}

const detailOf = ({ detail }: Pick<AuditRow, "detail">): Detail => detail as Detail;

/** As the form had them. Times are lengths of time again, because the form had such. */
function valuesOf(rows: readonly AuditRow[]): Values {
  const [row] = rows as readonly [AuditRow];
  const { ids, job_id: jobId, set = {}, where, from, until, error, ...detail } = detailOf(row);
  const begins = timeOf(from);
  const counts = rows.map((one) => detailOf(one).count);
  return {
    ...targetOf(row),
    partition: row.partition ?? undefined,
    ids: jobId === undefined ? ids?.join(",") : String(jobId),
    ...textsOf(set),
    from: lengthOf(row.at.getTime(), begins),
    for: lengthOf(begins ?? row.at.getTime(), timeOf(until)),
    count:
      row.verb === "admit" ? String(counts.reduce<number>((sum, one) => sum + (one ?? 0), 0)) : undefined,
    error,
    "to-policy": detail.to_policy,
    "to-partition": detail.to_partition ?? undefined,
  };
}

function targetOf({ policy, gate, scopeKey: key, ...row }: AuditRow): Values {
  const { where } = detailOf(row);
  return {
    policy: policy ?? undefined,
    gate: gate ?? undefined,
    key: key ?? undefined,
    where: where && JSON.stringify(where),
  };
}

/** What was asked for came a moment before its row. */
function lengthOf(from: number, until: number | null): string | undefined {
  if (until === null || !Number.isFinite(until) || until <= from) return undefined; // of a retry it is the time of the count
  const unit = until - from < 10_000 ? 100 : 1000;
  return durationOf(Math.round((until - from) / unit) * unit);
}

/** Of all calls. The first one of a step tells how many it was meant for. */
function totalOf(rows: readonly AuditRow[], name: ActionName) {
  const steps = Object.values(Object.groupBy(rows, ({ form }) => form?.split(/[:.]/)[1] ?? ""));
  const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);
  const changed = sum(rows.map((row) => row.changed));
  const matched = sum(
    steps.map((step = []) => Math.max(step[0]?.matched ?? 0, sum(step.map((row) => row.changed)))),
  );
  const stored = matched === 0 && ["pause", "hold", "set-limit"].includes(name);
  return { matched, changed, stored, running: sum(rows.map((row) => detailOf(row).running ?? 0)) };
}

/** All steps of a filter have their ids in the audit. The page that asked has the command for them. */
function isToCopy(rows: readonly AuditRow[]): boolean {
  return rows.every((row) => (detailOf(row).ids?.length ?? 0) <= MOST_IDS);
}

/** The pages that ask before it is undone. A limit that was there before comes back with its end, unless that has passed. */
function undoLinks(
  base: string,
  name: ActionName,
  row: AuditRow,
  values: Values,
  now: number,
): readonly Markup[] {
  const reason = `Undo: ${row.reason ?? name}`;
  const link = (to: ActionName, query: Values, words = "Undo") =>
    html`<a href="${pathTo(base, `/act/${to}`, { ...query, reason })}">${words}</a>`;
  if (name !== "set-limit" && name !== "clear-limit") {
    const { inverse } = ACTIONS[name];
    return inverse ? [link(inverse, { policy: values.policy, partition: values.partition })] : [];
  }
  const target = targetOf(row);
  const was = (detailOf(row).was ?? []).filter(({ until }) => (timeOf(until) ?? now) >= now);
  if (was.length === 0) return name === "set-limit" ? [link("clear-limit", target)] : [];
  return was.map(({ set, from, until }) => {
    const numbers = textsOf(set);
    const begins = timeOf(from) ?? now;
    const again = {
      ...{ ...target, key: keyAsWritten(target.key), ...numbers },
      ...{ from: begins > now ? isoOf(from) : undefined, for: isoOf(until) },
    };
    return link("set-limit", again, was.length === 1 ? "Undo" : `Undo: set ${inWords(numbers)} again`);
  });
}

const isoOf = (time: string | null | undefined) => {
  const ms = timeOf(time);
  return ms === null ? undefined : new Date(ms).toISOString();
};

const inWords = (numbers: Values) =>
  Object.entries(numbers)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
