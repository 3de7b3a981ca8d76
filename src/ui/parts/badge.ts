import { STOPS } from "../../policy/reasons.ts";
import { html, type Markup } from "./markup.ts";

/** How a state is: as it should be, stopped or gone wrong, or neither. */
export type Tone = "good" | "bad" | "plain";

const SIGNS: Readonly<Record<Tone, string>> = { good: "✓ ", bad: "✕ ", plain: "" };

/** A state in its own frame, so that it is found in a row of words. It is told by sign and word, and not by its colour alone. */
export function badge(word: string, tone: Tone = "plain"): Markup {
  return html`<span class="badge ${tone}">${SIGNS[tone]}${word}</span>`;
}

/** A reason why something waits. That somebody stopped it stands out from what passes by itself. */
export function reasonBadge(reason: string | null): Markup | string | null {
  return reason !== null && STOPS.some((stop) => stop === reason) ? badge(reason, "bad") : reason;
}

const STATES: Readonly<Record<string, Tone>> = { running: "good", failed: "bad" };

/** The state of a job. */
export function jobBadge(state: string): Markup {
  return badge(state, STATES[state]);
}
