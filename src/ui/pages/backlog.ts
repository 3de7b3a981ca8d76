import { html, type Markup } from "../parts/markup.ts";
import { grouped, lasting } from "../parts/words.ts";
import { growth, type Minute } from "./minutes.ts";

/** Over how many minutes a trend is worked out. */
const BACK = 15;
/** Slower changes are no trend. */
const LEAST_EACH_MINUTE = 0.5;
/** From these lengths on the page warns. */
const [LONG_SECONDS, TOO_LONG_SECONDS] = [30 * 60, 120 * 60];

/** Where a backlog goes if the last minutes are like the next ones. */
export interface Trend {
  /** How many jobs more wait after each minute. */
  readonly eachMinute: number;
  /** Seconds until none waits; null: it does not shrink, or nothing waits. */
  readonly drainSeconds: number | null;
}

export function trendOf(minutes: readonly Minute[], staged: number): Trend {
  const eachMinute = growth(minutes, BACK);
  const shrinks = eachMinute <= -LEAST_EACH_MINUTE && staged > 0;
  return { eachMinute, drainSeconds: shrinks ? (staged / -eachMinute) * 60 : null };
}

/** "grows by 12 a minute" */
export function inWords({ eachMinute }: Trend): string {
  if (Math.abs(eachMinute) < LEAST_EACH_MINUTE) return "stays as it is";
  const jobs = grouped(Math.round(Math.abs(eachMinute)) || 1);
  return `${eachMinute > 0 ? "grows" : "shrinks"} by ${jobs} a minute`;
}

/** "↗ grows by 12 a minute, gone in 3 h" */
export function trendInWords(trend: Trend): string {
  const { eachMinute, drainSeconds } = trend;
  const arrow = Math.abs(eachMinute) < LEAST_EACH_MINUTE ? "→" : eachMinute > 0 ? "↗" : "↘";
  const gone = drainSeconds === null ? "" : `, gone in ${lasting(Math.round(drainSeconds))}`;
  return `${arrow} ${inWords(trend)}${gone}`;
}

/** What is worth a warning: null, nothing. */
export function trendHint(trend: Trend, staged: number): Markup | null {
  const { drainSeconds: seconds } = trend;
  if (staged > 0 && trend.eachMinute >= LEAST_EACH_MINUTE)
    return html`<li class="warn"><span class="mark">warning</span> The backlog ${inWords(trend)}, over the last ${BACK} minutes.</li>`;
  if (seconds === null || seconds < LONG_SECONDS) return null;
  const isTooLong = seconds >= TOO_LONG_SECONDS;
  return html`<li class="${isTooLong ? "warn" : ""}"><span class="mark">${isTooLong ? "warning" : "info"}</span> At the pace of the last ${BACK} minutes the backlog is gone in ${lasting(Math.round(seconds))}.</li>`;
}
