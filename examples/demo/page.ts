/** The page of `--ui`, in the frame of the admin pages. */
import type pg from "pg";
import { factList } from "../../src/ui/parts/facts.ts";
import { layout } from "../../src/ui/parts/layout.ts";
import { pathTo } from "../../src/ui/parts/links.ts";
import { html, type Markup, none } from "../../src/ui/parts/markup.ts";
import { grouped } from "../../src/ui/parts/words.ts";
import { type DemoJob, JOBS } from "./jobs.ts";
import { type Asked, BATCHES_A_SECOND, MOST, type Storm } from "./tenant-storm.ts";

/** Where the admin pages are. */
export const ADMIN = "/admin";
export const YOU = { name: "you", role: "operator" } as const;
/** How many jobs the button of a card adds, and for how many tenants. */
export const ADD = { jobs: 50, tenants: 5 } as const;

/** What a card says of its policy. */
interface Numbers {
  readonly policy: string;
  readonly staged: number;
  readonly in_flight: number;
  readonly admitted: string;
  readonly last_minute: string;
}

const NUMBERS = `
select p.policy, p.staged, p.in_flight,
  (select coalesce(sum(x.admitted_total), 0) from dispatch_policy.partitions x where x.policy = p.policy) as admitted,
  (select coalesce(sum(m.admitted), 0) from dispatch_policy.minutes m
    where m.policy = p.policy and m.minute = date_trunc('minute', now()) - interval '1 minute') as last_minute
from dispatch_policy.policies p`;

/** What the form has: what was sent last. */
export type Fields = Readonly<Record<"target" | keyof typeof MOST, string>>;

const FIRST: Fields = { target: "fair_shares", tenants: "100", skew: "1", seconds: "60", batch: "20" };

export interface Shown {
  readonly storm: Storm | undefined;
  /** What a form was refused for, and what it had; both undefined: none was. */
  readonly refused?: { readonly why: string; readonly form: URLSearchParams };
}

export async function pageOf(pool: pg.Pool, { storm, refused }: Shown): Promise<Markup> {
  const { rows } = await pool.query<Numbers>(NUMBERS);
  const numbers = new Map(rows.map((row) => [row.policy, row]));
  return layout({
    ...{ base: ADMIN, environment: "demo", viewer: YOU, path: "/demo", title: "Ten jobs" },
    isLive: !refused,
    body: html`${refused ? html`<p class="bad" role="alert">${refused.why} Nothing was added.</p>` : none}
<p>Two worker processes with 50 slots each run them. The pages above show what waits, and why.</p>
<ul class="cards">${JOBS.map((job) => card(job, numbers.get(job.policy.identifier)))}</ul>
<h2 id="storm">Storm</h2>
${storm ? stormLine(storm) : html`<p>Jobs of many tenants, in ${BATCHES_A_SECOND} batches a second.</p>`}
${stormForm(fieldsOf(refused?.form, storm?.asked), storm?.secondsLeft !== undefined)}
<p class="quiet">Skew: 0 is the same for each tenant. With 1 the second has half as many jobs as the first, the third a third.
With 2 most jobs are of the first.</p>`,
  });
}

/** The buttons have the method, not the forms: live.js leaves a page alone on which a form has it, and the numbers would stand still. */
function card({ policy, title, about }: DemoJob, its: Numbers | undefined): Markup {
  const name = policy.identifier;
  const facts = factList([
    ["wait", grouped(its?.staged)],
    ["in flight", grouped(its?.in_flight)],
    ["admitted", grouped(its && Number(its.admitted))],
    ["last minute", grouped(its && Number(its.last_minute))],
  ]);
  return html`<li id="${name}"><strong>${title}</strong>${about}
${facts}
<form><button formmethod="post" formaction="/add" name="job" value="${name}" aria-label="Add ${ADD.jobs}: ${title}">Add ${ADD.jobs}</button> <a href="${pathTo(ADMIN, "/policy", { policy: name })}">${name}</a></form></li>`;
}

function stormLine({ asked, added, secondsLeft, ended }: Storm): Markup {
  const what = `${grouped(added)} jobs of ${asked.target.policy.identifier}`;
  if (secondsLeft !== undefined)
    return html`<p class="sentence">It has added ${what}, and goes on for ${secondsLeft} s.</p>`;
  return html`<p>The last one added ${what}${ended === undefined ? "." : html`, and ended early: ${ended}.`}</p>`;
}

function fieldsOf(form: URLSearchParams | undefined, asked: Asked | undefined): Fields {
  const last: Partial<Record<string, string>> = asked
    ? { ...FIRST, ...numbersOf(asked), target: asked.target.policy.identifier }
    : FIRST;
  const given = (name: keyof Fields) => form?.get(name) ?? last[name] ?? "";
  return {
    target: given("target"),
    tenants: given("tenants"),
    skew: given("skew"),
    seconds: given("seconds"),
    batch: given("batch"),
  };
}

function numbersOf({ tenants, skew, seconds, batch }: Asked): Record<string, string> {
  return { tenants: String(tenants), skew: String(skew), seconds: String(seconds), batch: String(batch) };
}

function stormForm(fields: Fields, isRunning: boolean): Markup {
  const number = (name: keyof typeof MOST, label: string, least: number, step = "1") =>
    html`<label>${label} <input name="${name}" type="number" value="${fields[name]}" min="${least}" max="${MOST[name]}" step="${step}" required></label>`;
  const option = ({ policy: { identifier }, title }: DemoJob) =>
    html`<option value="${identifier}"${identifier === fields.target ? html` selected` : ""}>${title}</option>`;
  const button = isRunning
    ? html`<button formmethod="post" formaction="/stop" formnovalidate>Stop the storm</button>`
    : html`<button formmethod="post" formaction="/storm">Start the storm</button>`;
  return html`<form><label>Target <select name="target">${JOBS.map(option)}</select></label>
${number("tenants", "Tenants", 1)}${number("skew", "Skew", 0, "0.1")}${number("seconds", "Seconds", 1)}${number("batch", "Jobs in a batch", 1)}
${button}</form>`;
}
