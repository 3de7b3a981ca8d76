import { isInnerList, parseDictionary, parseList, Token } from "structured-headers";
import type { Duration } from "../index.ts";
import { hubspot, openai, plainNumber, type Quota, type Read } from "./vendor-quotas.ts";

/** A server's answer about its limit. What it does not say is null. */
export interface RateLimit {
  /** How long to stay away, for `new RetryAfter(…)`. Null: the server takes requests. */
  readonly retryAfter: Duration | null;
  /** The same in milliseconds, for `hold({ forMs })`. */
  readonly forMs: number | null;
  /** Requests, or units of quota, that the server takes in a window. */
  readonly limit: number | null;
  /** What is left of them. */
  readonly remaining: number | null;
  /** When all of them are back, by this process's clock. */
  readonly resetAt: Date | null;
  /** The length of the window, in seconds. */
  readonly perSeconds: number | null;
}

/** Headers of the Fetch API, or of `node:http`, whose names are in lower case. */
export type ResponseHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** A number of seconds from here on is a date: 2001 if it is one in seconds. */
const EPOCH_SECONDS = 1e9;
const EPOCH_MS = 1e12;
/** A wait of more than a year is a mistake of the server's, and would stop the partition. */
const MOST_MS = 366 * 86_400_000;

/**
 * Reads what a server's response says of its rate limit. Feed the result to `RetryAfter`, `hold`, or your own metrics.
 *
 * | header | forms that it reads |
 * | --- | --- |
 * | `Retry-After` | seconds, or an HTTP date (RFC 9110, 10.2.3) |
 * | `RateLimit`, `RateLimit-Policy` | `"day";r=0;t=30` and `"day";q=100;w=86400` (draft-ietf-httpapi-ratelimit-headers, from 08), `limit=100, remaining=0, reset=30` (07) |
 * | `RateLimit-Limit`, `-Remaining`, `-Reset` | numbers, the reset in seconds from now (the same draft, to 06) |
 * | `X-RateLimit-…`, `X-Rate-Limit-…` | the same numbers. The reset may be seconds from now, a Unix time in seconds or milliseconds, or a date; or `-Reset-After` in seconds |
 * | `x-ratelimit-…-requests`, `-tokens`, `-project-tokens` | OpenAI's. The reset is a duration such as `6m0s`, `1s` or `20ms`, or seconds |
 * | `X-HubSpot-RateLimit-…` | HubSpot's window, and its day. A window that is used up is back after `-Interval-Milliseconds` |
 *
 * `Retry-After` decides how long to stay away. Without it, it is the time until the reset, if nothing remains. Of several
 * limits the one counts whose rest is the smallest; of equals the one that resets last. A date is compared with the
 * response's own `Date`, so neither clock has to be right. A value that makes no sense counts as absent. So does a wait of
 * more than 366 days.
 *
 * @param headers of `fetch`'s response, or an object with names in lower case
 * @param now milliseconds since 1970; it is there for tests
 * @example
 * const limit = rateLimitFromHeaders(new Headers({ "retry-after": "30" }));
 * if (limit.retryAfter) throw new RetryAfter(limit.retryAfter, { reason: "the partner's limit" });
 */
export function rateLimitFromHeaders(headers: ResponseHeaders, now: number = Date.now()): RateLimit {
  const read = reader(headers);
  const theirNow = dateMs(read("date")) ?? now;
  const quota = tightest([
    ...structured(read),
    ...numbered(read, theirNow),
    ...openai(read),
    ...hubspot(read),
  ]);
  const forMs =
    waitMs(read("retry-after"), theirNow) ?? (quota?.remaining === 0 ? sensible(quota.resetMs) : null);
  const resetMs = sensible(quota?.resetMs ?? null);
  return {
    retryAfter: forMs === null ? null : `${forMs} ms`,
    forMs,
    limit: quota?.limit ?? null,
    remaining: quota?.remaining ?? null,
    resetAt: resetMs === null ? null : new Date(now + resetMs),
    perSeconds: quota?.perSeconds ?? null,
  };
}

function reader(headers: ResponseHeaders): Read {
  const { get } = headers;
  if (typeof get === "function") return (name) => get.call(headers, name);
  return (name) => {
    const value = (headers as Record<string, string | readonly string[] | undefined>)[name];
    return value === undefined ? null : String(value); // several lines of one header are one list
  };
}

/** The drafts' own fields, which are structured. */
function structured(read: Read): Quota[] {
  const policies = new Map(items(read("ratelimit-policy")).map(({ name, get }) => [name, get]));
  const limits = items(read("ratelimit")).map(({ name, get }): Quota => {
    const policy = policies.get(name);
    return {
      limit: policy?.("q") ?? null,
      remaining: get("r"),
      resetMs: inMs(get("t")),
      perSeconds: policy?.("w") ?? null,
    };
  });
  const entries = orNull(() => parseDictionary(read("ratelimit") ?? ""));
  const entry = (name: string) => count(entries?.get(name)?.[0]);
  const [remaining, resetMs] = [entry("remaining"), inMs(entry("reset"))];
  if (remaining === null && resetMs === null) return limits;
  return [{ limit: entry("limit"), remaining, resetMs, perSeconds: null }];
}

/** Named limits, each with a reader of its parameters. */
function items(text: string | null) {
  const list = orNull(() => parseList(text ?? "")) ?? [];
  return list.flatMap((item) => {
    if (isInnerList(item) || !(typeof item[0] === "string" || item[0] instanceof Token)) return [];
    const [name, parameters] = item;
    return [{ name: String(name), get: (parameter: string) => count(parameters.get(parameter)) }];
  });
}

/** The fields of one number each. */
function numbered(read: Read, theirNow: number): Quota[] {
  return ["ratelimit-", "x-ratelimit-", "x-rate-limit-"].flatMap((prefix) => {
    // "100, 100;w=60" names the limit in force first
    const number = (name: string) => count(orNull(() => parseList(read(prefix + name) ?? "")[0]?.[0]));
    const remaining = number("remaining");
    const resetMs = inMs(number("reset-after")) ?? resetIn(read(`${prefix}reset`), theirNow);
    if (remaining === null && resetMs === null) return [];
    return [{ limit: number("limit"), remaining, resetMs, perSeconds: null }];
  });
}

function tightest(quotas: readonly Quota[]): Quota | undefined {
  const rest = ({ remaining }: Quota) => remaining ?? Number.POSITIVE_INFINITY;
  return quotas.toSorted((a, b) => {
    if (rest(a) !== rest(b)) return rest(a) < rest(b) ? -1 : 1;
    return (b.resetMs ?? 0) - (a.resetMs ?? 0);
  })[0];
}

function waitMs(text: string | null, theirNow: number): number | null {
  const at = dateMs(text);
  return sensible(inMs(plainNumber(text)) ?? (at === null ? null : at - theirNow));
}

function resetIn(text: string | null, theirNow: number): number | null {
  const number = plainNumber(text);
  if (number === null) {
    const at = dateMs(text);
    return at === null ? null : at - theirNow;
  }
  if (number >= EPOCH_MS) return number - theirNow;
  return number >= EPOCH_SECONDS ? number * 1000 - theirNow : number * 1000;
}

/** Whole milliseconds, none of them below 0. */
function sensible(ms: number | null): number | null {
  return ms === null || ms > MOST_MS ? null : Math.max(0, Math.ceil(ms));
}

function inMs(seconds: number | null): number | null {
  return seconds === null ? null : seconds * 1000;
}

/** An HTTP date, or one of ISO 8601. `Date.parse` alone reads "30" and "in 5 seconds" as dates. */
const DATE = /^\s*((mon|tue|wed|thu|fri|sat|sun)[a-z]*,? |\d{4}-\d\d-\d\dT)/i;

function dateMs(text: string | null): number | null {
  const at = text !== null && DATE.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : at;
}

function count(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;
}

/** A header that is malformed says nothing. */
function orNull<T>(parse: () => T): T | null {
  try {
    return parse();
  } catch {
    return null;
  }
}
