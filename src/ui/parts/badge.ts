import { REASON_KINDS, reasonTitle } from "../../policy/reasons.ts";
import { html, type Markup } from "./markup.ts";

/** How a state is: as it should be, stopped or gone wrong, to be looked at, or neither. */
export type Tone = "good" | "bad" | "warn" | "plain";

const SIGNS: Readonly<Record<Tone, string>> = { good: "✓ ", bad: "✕ ", warn: "! ", plain: "" };

/** A state in its own frame, so that it is found in a row of words. It is told by sign and word, and not by its colour alone. */
export function badge(word: string, tone: Tone = "plain"): Markup {
  return html`<span class="badge ${tone}">${SIGNS[tone]}${word}</span>`;
}

/** A kind of reason that does not pass by itself. */
const TONES: Readonly<Record<string, Tone>> = { stop: "bad", zero: "warn" };

/** A reason why something waits, with its code behind it. Null: nothing holds it back. */
export function reasonBadge(reason: string | null, gate: string | null = null): Markup | null {
  if (reason === null) return null;
  const kind = (REASON_KINDS as Readonly<Record<string, string>>)[reason] ?? "";
  return html`${badge(reasonTitle(reason, gate), TONES[kind])} <span class="code">${reason}</span>`;
}

const STATES: Readonly<Record<string, Tone>> = { running: "good", failed: "bad" };

/** The state of a job. */
export function jobBadge(state: string): Markup {
  return badge(state, STATES[state]);
}
