// A form may be sent once, and not for long. Its token goes with the verb into the audit, in the transaction that does what it
// asks. So whoever sends it again, to whatever process, finds that it is done.
import { randomBytes } from "node:crypto";
import type { OperateContext } from "../../operate/call.ts";
import { type AuditRow, parameter, rowsBy, rowsOf } from "../../operate/view-rows.ts";
import { html, type Markup } from "../parts/markup.ts";
import { moment } from "../parts/words.ts";
import type { Values } from "./form.ts";
import { whereIn } from "./limit-actions.ts";

/** For how long a form may be sent. After that, what it counted is no reason to do it any more. */
export const LASTS_MS = 3_600_000;

export interface Token {
  readonly text: string;
  /** When the page was made, by the database's clock. */
  readonly madeAt: Date;
}

const TOKEN = /^([0-9a-z]{8,9})-[\w-]{22}$/;

export function tokenOf(madeAt: Date): string {
  return `${madeAt.getTime().toString(36)}-${randomBytes(16).toString("base64url")}`;
}

/** Undefined: it is none. */
export function tokenIn(text: string | null): Token | undefined {
  const [found, ms = ""] = TOKEN.exec(text ?? "") ?? [];
  return found === undefined ? undefined : { text: found, madeAt: new Date(Number.parseInt(ms, 36)) };
}

/** What a page puts into its form. */
export async function newToken({ engine, withPgClient }: OperateContext): Promise<string> {
  return tokenOf(await withPgClient(engine.now));
}

/** Verbs that are called for a step of a form: a plain form is one step. */
export function callingFor(acting: OperateContext, { text }: Token, step = 0): OperateContext {
  return { ...acting, form: { name: `${text}:${step}`, calls: 0 } };
}

/** What a form has done, or one step of it, in order. */
export function recordedBy(
  looking: OperateContext,
  { text }: Token,
  step?: number,
): Promise<readonly AuditRow[]> {
  const [from, below] =
    step === undefined ? [`${text}:`, `${text};`] : [`${text}:${step}.`, `${text}:${step}/`]; // the sign behind it
  return rowsBy(looking, (client) => looking.engine.formRows(client, from, below));
}

/** Undefined, if the error says that the same form was sent at the same time, and has done it. */
export function unlessSentTwice(error: unknown): undefined {
  if ((error as { constraint?: unknown } | null)?.constraint !== "audit_of_form") throw error;
}

const SAME = ["policy", "partition", "gate", "scope_key"] as const;
const MEANWHILE = `where at >= ${parameter(1, "time")} and verb = any(${parameter(2, "texts")})
  and ${SAME.map((name, n) => `${name} is not distinct from ${parameter(n + 3, "text")}`).join(" and ")}
  and (detail -> 'where') is not distinct from ${parameter(7, "jsonb")}
  and split_part(coalesce(form, ''), ':', 1) <> ${parameter(8, "text")}
  order by id desc limit 1`;

/** Why a form is not to be sent any more: it is too old. `lastAt`: when its last step was taken. Undefined: it may be sent. */
export async function isTooOld(
  { engine, withPgClient }: OperateContext,
  token: Token | undefined,
  lastAt = token?.madeAt,
): Promise<Markup | undefined> {
  const now = await withPgClient(engine.now);
  if (lastAt && now.getTime() - lastAt.getTime() <= LASTS_MS) return undefined;
  return html`Nothing was done: this form is more than an hour old. ${LOOK_AGAIN}`;
}

/**
 * The same for the form of a policy, a partition or a limit, to which somebody may have done something since. For jobs by their
 * ids the verbs themselves find out.
 *
 * @param verbs those that have forms
 */
export async function whyNot(
  looking: OperateContext,
  token: Token | undefined,
  values: Values,
  verbs: readonly string[],
): Promise<Markup | undefined> {
  const tooOld = await isTooOld(looking, token);
  const { policy, partition, gate, key, ids } = values;
  if (tooOld || !token || policy === undefined || ids !== undefined) return tooOld;
  const since = new Date(token.madeAt.getTime() + 1); // the token has no parts of a millisecond
  const target = [policy, partition, gate, key, JSON.stringify(whereIn(values.where))];
  const [act] = await rowsOf<AuditRow>(looking, "audit", MEANWHILE, [
    since,
    verbs.map((name) => name.replaceAll("-", "_")),
    ...target.map((value) => value ?? null),
    token.text, // what the form itself has done, sent at the same time, is nothing new
  ]);
  if (!act) return undefined;
  const why = act.reason === null ? "" : `: ${act.reason}`;
  return html`Nothing was done: ${act.by} was faster, with ${act.verb} at ${moment(act.at)}${why}. ${LOOK_AGAIN}`;
}

const LOOK_AGAIN =
  "Here is a new one, with what you filled in. Look at it again, and send it if you still mean it.";
