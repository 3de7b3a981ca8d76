// The playground's page. What a visitor can set stands in it from the beginning, and its script makes it move.
import { PRESETS } from "../playground/presets.ts";
import { DEFAULTS, type Field, GROUPS, isChoice, shown } from "../playground/setup.ts";
import { escaped, type Page } from "./page.ts";

export function playgroundPage(megabytes: number): Page {
  const cards = PRESETS.map(
    ({ id, title, shows }) =>
      `<li><button type="button" data-preset="${id}" aria-pressed="false"><strong>${title}</strong><span>${escaped(shows)}</span></button></li>`,
  );
  const body = `<h1>Playground</h1>
<p class="intro">Choose a case, change its limits, and run it. A minute of it takes a few seconds. The engine is the real one: this
package's own SQL and TypeScript, on a PostgreSQL that runs in your browser. Only the workers are made up.</p>
<h2 id="cases">Cases</h2>
<ul class="presets" aria-labelledby="cases">${cards.join("\n")}</ul>
<div class="bench">
<form id="setup">${GROUPS.map(
    ({ title, fields }) => `<fieldset><legend>${title}</legend>${fields.map(fieldOf).join("\n")}</fieldset>`,
  ).join("\n")}</form>
<section class="results" aria-labelledby="run-title">
<h2 id="run-title">Run</h2>
<p class="bar"><button type="button" class="main" id="run">Run</button> <button type="button" id="stop" disabled>Stop</button>
<span id="status" role="status">Run loads PostgreSQL first: ${megabytes} MB, once.</span></p>
<progress id="progress" max="1" value="0" aria-label="Loading and running" hidden></progress>
<figure><ol class="lanes" id="lanes"></ol>
<div class="axis" aria-hidden="true"><span></span><span id="axis"></span><span></span></div>
<label class="time"><span>Look at</span> <input type="range" id="time" min="0" max="60" value="60" disabled><output class="at" id="at">the end</output></label>
<figcaption><span class="key starts"></span> starts <span class="key waiting"></span> jobs that wait
<span class="key held"></span> partition held <span class="key bad"></span> runs that failed, were refused or cancelled</figcaption></figure>
<div class="wide"><table><caption>Each tenant at that time, and why its next job waits, in the words of <code>explain</code></caption>
<thead><tr><th scope="col">Tenant</th><th scope="col" class="number">Started</th><th scope="col" class="number">Run</th><th scope="col" class="number">Wait</th><th scope="col">Why</th></tr></thead>
<tbody id="tenants"></tbody></table></div>
</section>
<section class="policy" aria-labelledby="policy-title">
<h2 id="policy-title">As a policy</h2>
<pre tabindex="0" aria-labelledby="policy-title"><code id="policy"></code></pre>
<p><button type="button" id="copy">Copy as policy</button> <span id="copied" role="status"></span></p>
<p class="quiet">The jobs' lengths, failures and refusals are part of the case, and not of the policy.
<a href="docs/start.html#what-is-real">What is real here, and what is not</a>.</p>
</section>
</div>`;
  return { name: "playground.html", title: "Playground", body, script: "modules/site/playground/page.js" };
}

function fieldOf(field: Field): string {
  const value = DEFAULTS[field.key];
  const { key, label } = field;
  if (isChoice(field)) {
    const choices = Object.entries(field.choices).map(
      ([name, words]) => `<option value="${name}"${name === value ? " selected" : ""}>${words}</option>`,
    );
    return `<label for="set-${key}">${label}</label><select id="set-${key}" name="${key}">${choices.join("")}</select>`;
  }
  return `<label for="set-${key}">${label} <output class="value" for="set-${key}" data-of="${key}">${shown(field, value)}</output></label><input type="range" id="set-${key}" name="${key}" min="${field.from}" max="${field.to}" step="${field.step}" value="${value}">`;
}
