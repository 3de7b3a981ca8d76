import type { OperateContext } from "../../operate/call.ts";
import { limitInWords } from "../../operate/gate-words.ts";
import type { ContextValues } from "../../operate/targets.ts";
import { parameter, rowsOf } from "../../operate/view-rows.ts";
import { limitedBy } from "../../operate/words.ts";
import { pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup, none } from "../parts/markup.ts";
import { table } from "../parts/table.ts";
import { moment } from "../parts/words.ts";

/** A row of the view `past_limits`. */
interface PastLimit {
  readonly id: string;
  readonly policy: string;
  readonly gate: string;
  readonly key: string | null;
  readonly where: ContextValues | null;
  readonly set: object | null;
  readonly from: Date;
  readonly endedAt: Date;
  readonly endedByVerb: "clear_limit" | "set_limit" | "hold" | "remove_policy" | null;
  readonly endedBy: string | null;
  readonly endReason: string | null;
  readonly neverBegan: boolean;
  readonly by: string;
  readonly reason: string | null;
}

const MOST = 50;
const BEFORE = parameter(1, "id");
const OVER = `where ${BEFORE} is null or id < ${BEFORE} order by id desc limit ${parameter(2, "int")}`;

const ENDS = {
  clear_limit: "cleared",
  set_limit: "another one took its place",
  hold: "a longer hold took its place",
  remove_policy: "the policy was removed",
} as const;

/** Limits that are over, page by page. */
export async function pastLimits(
  looking: OperateContext,
  base: string,
  before: string | undefined,
): Promise<Markup> {
  const from = before !== undefined && /^\d{1,18}$/.test(before) ? before : null;
  const found = await rowsOf<PastLimit>(looking, "past_limits", OVER, [from, MOST]);
  const next = found.length === MOST ? found.at(-1)?.id : undefined;
  return html`${table(
    "Those that were set last come first, as far back as the audit goes",
    found,
    [
      { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
      { title: "Gate", cell: ({ gate }) => gate },
      { title: "For", cell: limitedBy },
      { title: "Values", cell: ({ set }) => (set === null ? "hold" : limitInWords(set)) },
      { title: "From", cell: (one) => (one.neverBegan ? html`never began` : moment(one.from)) },
      { title: "Ended", cell: ({ endedAt }) => moment(endedAt) },
      { title: "By", cell: ({ by }) => by },
      { title: "Reason", cell: ({ reason }) => reason },
      { title: "What ended it", cell: endOf },
    ],
    "No limit that operators set is over.",
  )}
${next === undefined ? none : html`<p><a href="${pathTo(base, "/limits", { before: next })}" rel="next">Older</a></p>`}`;
}

function endOf({ endedByVerb, endedBy, endReason }: PastLimit): string {
  if (endedByVerb === null) return "its end came";
  return `${ENDS[endedByVerb]}, by ${endedBy}${endReason === null ? "" : `: ${endReason}`}`;
}
