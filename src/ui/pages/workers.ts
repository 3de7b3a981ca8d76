import { some } from "../../counted.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { badge } from "../parts/badge.ts";
import { gauge } from "../parts/gauge.ts";
import { pathTo, policyLink } from "../parts/links.ts";
import { html, type Markup } from "../parts/markup.ts";
import { strip } from "../parts/strip.ts";
import { table } from "../parts/table.ts";
import { grouped, moment } from "../parts/words.ts";
import type { Page } from "./visit.ts";

/** What the views `workers` and `dead_workers` say of each pool. */
interface Pool {
  readonly poolId: string;
  readonly host: string | null;
  readonly pid: number | null;
  readonly startedAt: Date;
  readonly heartbeatAt: Date;
}

interface Known extends Pool {
  readonly slots: number;
  readonly running: number;
  readonly tasks: readonly string[];
  readonly policies: readonly string[];
  readonly otherDefinitions: readonly string[];
  readonly leads: readonly string[];
  readonly alive: boolean;
}

interface Dead extends Pool {
  readonly diedAt: Date;
  readonly unlocked: number;
  readonly usedUp: number;
}

/** Worker pools that have this package, and those that died within a day. */
export const workers: Page = async ({ looking, base }) => {
  const found = await rowsOf<Known>(looking, "workers", "order by alive desc, host, pool_id");
  const dead = await rowsOf<Dead>(looking, "dead_workers", "order by died_at desc");
  return {
    title: "Workers",
    body: html`${numbers(found, dead)}
${poolTable(found, base)}
<h2>Dead within a day</h2>
${deadTable(dead)}`,
  };
};

function numbers(found: readonly Known[], dead: readonly Dead[]): Markup {
  const alive = found.filter((one) => one.alive);
  const silent = found.length - alive.length;
  const total = (of: (one: Known) => number) => alive.reduce((sum, one) => sum + of(one), 0);
  return strip([
    ["alive", some(alive.length, "pool"), silent > 0 ? `and ${grouped(silent)} silent` : undefined],
    ["busy slots", `${grouped(total(({ running }) => running))} of ${grouped(total(({ slots }) => slots))}`],
    ["loops led", grouped(total(({ leads }) => leads.length))],
    ["dead within a day", grouped(dead.length)],
  ]);
}

function poolTable(found: readonly Known[], base: string): Markup {
  return table(
    "Worker pools with this package. Busy are slots with jobs of policies; jobs of other tasks are not counted",
    found,
    [
      { title: "State", cell: ({ alive }) => (alive ? badge("alive", "good") : badge("silent", "bad")) },
      { title: "Pool", cell: ({ poolId }) => html`<span class="whole">${poolId}</span>` },
      { title: "Host", cell: hostOf },
      { title: "Started", cell: ({ startedAt }) => moment(startedAt) },
      { title: "Heartbeat", cell: ({ heartbeatAt }) => moment(heartbeatAt) },
      {
        title: "Busy",
        isNumber: true,
        cell: ({ running, slots }) =>
          html`${gauge(running, slots)}${grouped(running)} of ${some(slots, "slot")}`,
      },
      { title: "Leads", cell: ({ leads }) => leads.join(", ") || null },
      { title: "Policies", cell: (one) => policiesOf(one, base) },
      { title: "Tasks", cell: ({ tasks }) => tasks.join(", ") },
    ],
    "No worker pool is known: start a worker with the preset. Until one runs, nothing is admitted.",
  );
}

function hostOf({ host, pid }: Pool): string | null {
  return host === null ? null : `${host}, process ${pid}`;
}

/** Each with the page that says what differs, if the pool has another definition than the one in force. */
function policiesOf({ policies, otherDefinitions }: Known, base: string): Markup {
  return html`${policies.map((policy, n) => {
    const differs = html` <a href="${pathTo(base, "/policy", { policy })}#definitions">${badge("another definition", "warn")}</a>`;
    return html`${n > 0 ? ", " : ""}${policyLink(base, policy)}${otherDefinitions.includes(policy) ? differs : ""}`;
  })}`;
}

function deadTable(dead: readonly Dead[]): Markup {
  return table(
    "The last first. Sweeps find a pool dead that is silent, and unlock its jobs",
    dead,
    [
      { title: "Pool", cell: ({ poolId }) => html`<span class="whole">${poolId}</span>` },
      { title: "Host", cell: hostOf },
      { title: "Started", cell: ({ startedAt }) => moment(startedAt) },
      { title: "Last heartbeat", cell: ({ heartbeatAt }) => moment(heartbeatAt) },
      { title: "Found dead", cell: ({ diedAt }) => moment(diedAt) },
      { title: "Its jobs", cell: jobsOf },
    ],
    "None died: a pool that stops by itself is not listed.",
  );
}

function jobsOf({ unlocked, usedUp }: Dead): string {
  if (unlocked + usedUp === 0) return "it had none locked";
  const says = [
    unlocked > 0 && `${some(unlocked, "job")} unlocked, to run again`,
    usedUp > 0 && `${some(usedUp, "job")} in the last attempt, failed for good`,
  ];
  return says.filter((one) => one !== false).join("; ");
}
