import type { Finding } from "../../operate/doctor.ts";
import type { UndeclaredPolicy } from "../../operate/status.ts";
import { rowsOf } from "../../operate/view-rows.ts";
import { html, type Markup } from "../parts/markup.ts";
import { undeclaredTable } from "../parts/undeclared-table.ts";
import { findingsOf, UNASKED } from "./findings.ts";
import type { Page } from "./visit.ts";

/** What the doctor finds, and what mends it. */
export const health: Page = async ({ looking, acting, base }) => {
  const findings = await findingsOf(acting);
  const undeclared = await rowsOf<UndeclaredPolicy>(looking, "undeclared_policies", "order by policy");
  const isWell = findings?.length === 0 && undeclared.length === 0;
  return {
    title: "Health",
    body: html`${findings === null ? html`<p>${UNASKED}</p>` : findings.map(section)}
${isWell ? html`<p class="good verdict"><span class="mark">✓</span> Nothing is wrong.</p>` : ""}
${undeclaredTable(undeclared, base)}`,
  };
};

function section({ id, severity, sentence, mend }: Finding): Markup {
  return html`<section>
<h2>${id}</h2>
<p><span class="mark ${severity === "info" ? "" : "bad"}">${severity}</span> ${sentence}</p>
<pre>${mend}</pre>
</section>`;
}
