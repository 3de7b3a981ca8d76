import { html } from "../parts/markup.ts";
import { findingsOf, UNASKED } from "./findings.ts";
import type { Page } from "./visit.ts";

/** What the doctor finds, and what mends it. */
export const health: Page = async ({ acting }) => {
  const findings = await findingsOf(acting);
  if (findings === null) return { title: "Health", body: html`<p>${UNASKED}</p>` };
  return {
    title: "Health",
    body:
      findings.length === 0
        ? html`<p class="good"><span class="mark">✓</span> Nothing is wrong.</p>`
        : html`${findings.map(
            ({ id, severity, sentence, mend }) => html`<section>
<h2>${id}</h2>
<p><span class="mark ${severity === "info" ? "" : "bad"}">${severity}</span> ${sentence}</p>
<pre>${mend}</pre>
</section>`,
          )}`,
  };
};
