import type { Finding } from "../../operate/doctor.ts";
import { html, type Markup } from "./markup.ts";

const TONES: Readonly<Record<string, string>> = { critical: "bad", warning: "warn" };

/** What is wrong, and behind it what mends that, if it is to be shown. */
export function findingHint({ severity, sentence, mend }: Finding, showsMend = false): Markup {
  return html`<li class="${TONES[severity] ?? ""}"><span class="mark">${severity}</span> ${sentence}${
    showsMend ? html`<details><summary>What mends that</summary><pre>${mend}</pre></details>` : ""
  }</li>`;
}
