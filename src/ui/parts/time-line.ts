import { some } from "../../counted.ts";
import type { JobHistory } from "../../operate/history.ts";
import { html, type Markup, none } from "./markup.ts";
import { lasting, moment } from "./words.ts";

const [WIDTH, HEIGHT] = [400, 20];
/** No run is so short that nobody sees it. */
const LEAST = 3;

interface Run {
  readonly from: number;
  readonly until: number;
  readonly hasFailed: boolean;
}

/** A job's attempts between its adding and its end, as bars on a line. The table below says the same, with the errors. */
export function timeLine(it: JobHistory): Markup {
  const runs = runsOf(it);
  const first = runs[0];
  const last = runs.at(-1);
  if (!first || !last) return none;
  const from = Math.min(it.addedAt?.getTime() ?? first.from, first.from);
  const until = Math.max(it.endedAt?.getTime() ?? last.until, last.until);
  const span = Math.max(until - from, 1);
  const bars = runs.map((run) => {
    const width = Math.max(((run.until - run.from) / span) * WIDTH, LEAST);
    const x = Math.min(((run.from - from) / span) * WIDTH, WIDTH - width);
    const [y, height] = run.hasFailed ? [HEIGHT / 2, HEIGHT / 2] : [0, HEIGHT];
    const tip = `${run.hasFailed ? "failed" : "ran"} for ${lasting((run.until - run.from) / 1000)}`;
    return html`<rect class="${run.hasFailed ? "failed" : "run"}" x="${x}" width="${width}" y="${y}" height="${height}"><title>${tip}</title></rect>`;
  });
  const admitted = it.admittedAt?.getTime() ?? from;
  const staged = (Math.max(admitted - from, 0) / span) * WIDTH;
  const failed = runs.filter(({ hasFailed }) => hasFailed).length;
  const says = `${some(runs.length, "attempt")} in ${lasting(span / 1000)}, ${failed} of them failed`;
  return html`<figure>
<svg class="time-line" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${says}"><rect class="staged" width="${staged}" height="${HEIGHT}"><title>in staging for ${lasting((admitted - from) / 1000)}</title></rect>${bars}</svg>
<p class="axis" aria-hidden="true"><span>${moment(new Date(from))}</span><span>${moment(new Date(until))}</span></p>
<figcaption>${says} <span class="quiet">From when it was added to its end. The pale part is its wait in staging. Failed attempts are half as high.</span></figcaption>
</figure>`;
}

/** The earliest first. A run whose times nobody saw is left out. */
function runsOf({ failedAttempts, startedAt, endedAt, outcome }: JobHistory): readonly Run[] {
  const failed = failedAttempts.map((one) => ({ from: one.startedAt, until: one.endedAt, hasFailed: true }));
  const isKnown = failed.some(({ from }) => from?.getTime() === startedAt?.getTime());
  const last = isKnown ? [] : [{ from: startedAt, until: endedAt, hasFailed: outcome === "failed" }];
  return [...failed, ...last]
    .flatMap(({ from, until, hasFailed }) =>
      from && until ? [{ from: from.getTime(), until: until.getTime(), hasFailed }] : [],
    )
    .toSorted((one, other) => one.from - other.from);
}
