import { argument, COMMAND } from "../../operate/quoted.ts";
import type { UndeclaredPolicy } from "../../operate/status.ts";
import { pathTo, policyLink } from "./links.ts";
import { html, type Markup, none } from "./markup.ts";
import { table } from "./table.ts";
import { grouped } from "./words.ts";

/** Jobs of policies that nobody declared, with the ways out. Nothing if there are none. */
export function undeclaredTable(undeclared: readonly UndeclaredPolicy[], base: string): Markup {
  if (undeclared.length === 0) return none;
  return html`<h2 id="undeclared">Policies that nobody declared</h2>
${table(
  "Nobody admits their jobs: a process added them before any declared the policy, or after it was removed",
  undeclared,
  [
    { title: "Policy", cell: ({ policy }) => policyLink(base, policy) },
    { title: "Staged", isNumber: true, cell: ({ staged }) => grouped(staged) },
    {
      title: "Its jobs",
      cell: ({ policy }) =>
        html`<a href="${pathTo(base, "/jobs", { policy })}" aria-label="jobs of ${policy}">jobs</a>`,
    },
  ],
  "",
)}
${waysOut(undeclared.length === 1 ? undeclared[0]?.policy : undefined)}`;
}

/** What to do about the jobs of one such policy, or of any. */
export function waysOut(policy: string | undefined): Markup {
  const name = policy === undefined ? "NAME" : argument(policy);
  return html`<p>If the policy is new, start a worker that has it. If it was renamed or removed, restart the processes that still add such jobs. Then move the jobs to another policy, or give them to Graphile Worker:</p>
<pre>${COMMAND} remove-policy --policy ${name} --into OTHER --yes
${COMMAND} unstage --policy ${name}</pre>`;
}
