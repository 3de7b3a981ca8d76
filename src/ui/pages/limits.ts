import { keyInWords, limitInWords } from "../../operate/gate-words.ts";
import { limits as limitsInForce, type Override } from "../../operate/limits.ts";
import { stops } from "../../operate/stops.ts";
import { badge } from "../parts/badge.ts";
import { pathTo, policyLink } from "../parts/links.ts";
import { html } from "../parts/markup.ts";
import { stopTable } from "../parts/stop-table.ts";
import { table } from "../parts/table.ts";
import { moment } from "../parts/words.ts";
import { pastLimits } from "./past-limits.ts";
import { asked, type Page } from "./visit.ts";

/** Limits that operators set: in force, to come and over. And what they stopped. */
export const limits: Page = async ({ looking, base, rights, query }) => {
  const found = await limitsInForce(looking);
  // by the database's clock, which decides whether a limit has begun
  const now = await looking.withPgClient(looking.engine.now);
  return {
    title: "Limits",
    body: html`${table(
      "Set instead of the policies' own, in force and to come",
      found,
      [
        {
          title: "State",
          cell: ({ from }) => (from !== null && from > now ? badge("to come") : badge("in force", "good")),
        },
        { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
        { title: "Gate", cell: ({ gate }) => gate },
        { title: "For", cell: reachOf },
        { title: "Values", cell: ({ override }) => limitInWords(override) },
        { title: "From", cell: ({ from }) => moment(from) },
        { title: "Until", cell: ({ until }) => (until ? moment(until) : "it is cleared") },
        { title: "By", cell: ({ by }) => by },
        { title: "Reason", cell: ({ reason }) => reason },
        {
          title: "Change",
          cell: ({ policy, gate, key, where }) =>
            rights.role === "operator"
              ? html`<a href="${pathTo(base, "/act/clear-limit", { policy, gate, key, where: where && JSON.stringify(where) })}">Clear limit</a>`
              : "",
        },
      ],
      "No limit differs from what the policies say.",
    )}
<h2>Stopped by name</h2>
${stopTable(await stops(looking), base)}
<h2>Limits that are over</h2>
${await pastLimits(looking, base, asked(query, "before"))}`,
  };
};

function reachOf({ key, where, seen }: Override): string {
  if (where !== null) return `partitions with ${JSON.stringify(where)}`;
  if (key === null) return "every key";
  return seen === false ? `${keyInWords(key)} (no job yet)` : keyInWords(key);
}
