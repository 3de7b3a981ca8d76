// Headers of servers whose names or times are their own. Looked up on 25 November 2026.

/** One limit of a server that may have several. Times are milliseconds from now. */
export interface Quota {
  limit: number | null;
  remaining: number | null;
  resetMs: number | null;
  perSeconds: number | null;
}

/** A header by its name in lower case. */
export type Read = (name: string) => string | null;

export function plainNumber(text: string | null): number | null {
  return text !== null && /^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : null;
}

/** Requests, tokens, and the tokens of the project. See https://developers.openai.com/api/docs/guides/rate-limits */
export function openai(read: Read): Quota[] {
  return ["requests", "tokens", "project-tokens"].flatMap((what) => {
    const number = (name: string) => plainNumber(read(`x-ratelimit-${name}-${what}`));
    const remaining = number("remaining");
    if (remaining === null) return []; // Azure writes -1 if it does not know
    const reset = read(`x-ratelimit-reset-${what}`);
    const seconds = plainNumber(reset); // Azure's
    const resetMs = seconds === null ? goDurationMs(reset) : seconds * 1000;
    return [{ limit: number("limit"), remaining, resetMs, perSeconds: null }];
  });
}

/**
 * The short window, whose length has a header of its own, and the day. The short one slides, so all of it is back after its
 * length. The day ends at midnight of the account's time zone, which no header names: a day that is used up says nothing of
 * a wait. The headers `-Secondly` are obsolete. See https://developers.hubspot.com/apps/api_guidelines
 */
export function hubspot(read: Read): Quota[] {
  const number = (name: string) => plainNumber(read(`x-hubspot-ratelimit-${name}`));
  const windowMs = number("interval-milliseconds");
  const window = { limit: number("max"), remaining: number("remaining"), resetMs: windowMs };
  const day = { limit: number("daily"), remaining: number("daily-remaining"), resetMs: null };
  const days = day.remaining === null ? [] : [{ ...day, perSeconds: 86_400 }];
  if (window.remaining === null || day.remaining === 0) return days;
  return [{ ...window, perSeconds: windowMs === null ? null : windowMs / 1000 }, ...days];
}

const UNIT_MS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** "6m0s", "1.5s" or "20ms", as Go writes durations. */
function goDurationMs(text: string | null): number | null {
  if (text === null || !/^\s*(\d+(\.\d+)?(ms|h|m|s))+\s*$/.test(text)) return null;
  const parts = text.matchAll(/([\d.]+)(ms|h|m|s)/g);
  return [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * (UNIT_MS[unit as string] ?? 0), 0);
}
