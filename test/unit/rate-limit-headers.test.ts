import test from "ava";
import { RetryAfter, rateLimitFromHeaders } from "../../src/index.ts";
import type { RateLimit } from "../../src/run/rate-limit-headers.ts";

const NOW = Date.parse("2026-11-24T12:00:00Z");
const NOTHING: RateLimit = {
  ...{ retryAfter: null, forMs: null, limit: null, remaining: null, resetAt: null, perSeconds: null },
};
const wait = (forMs: number) => ({ forMs, retryAfter: `${forMs} ms` }) as const;
const reset = (seconds: number) => ({ resetAt: new Date(NOW + seconds * 1000) });

const HEADERS: Readonly<Record<string, [Record<string, string | string[]>, Partial<RateLimit>]>> = {
  "no header": [{}, {}],
  "seconds to wait": [{ "retry-after": "30" }, wait(30_000)],
  "no wait": [{ "retry-after": "0" }, wait(0)],
  "a date to wait for": [{ "retry-after": "Tue, 24 Nov 2026 12:00:45 GMT" }, wait(45_000)],
  "a date that has passed": [{ "retry-after": "Tue, 24 Nov 2026 11:00:00 GMT" }, wait(0)],
  "a date of a server whose clock is an hour ahead": [
    { "retry-after": "Tue, 24 Nov 2026 13:00:45 GMT", date: "Tue, 24 Nov 2026 13:00:00 GMT" },
    wait(45_000),
  ],
  "a wait that is no time": [{ "retry-after": "soon" }, {}],
  "a wait in words": [{ "retry-after": "in 5 seconds" }, {}],
  "a wait below zero": [{ "retry-after": "-5" }, {}],
  "an empty wait": [{ "retry-after": "" }, {}],
  "a wait of three thousand years": [{ "retry-after": "99999999999" }, {}],
  "a limit and its policy": [
    { ratelimit: '"day";r=0;t=30', "ratelimit-policy": '"hour";q=10;w=3600, "day";q=100;w=86400' },
    { ...wait(30_000), ...reset(30), limit: 100, remaining: 0, perSeconds: 86_400 },
  ],
  "a limit that is not used up": [{ ratelimit: '"day";r=7;t=30' }, { ...reset(30), remaining: 7 }],
  "a limit with a bare name": [
    { ratelimit: "day;r=7;t=30", "ratelimit-policy": "day;q=9" },
    { ...reset(30), remaining: 7, limit: 9 },
  ],
  "several limits: the one with the least left": [
    { ratelimit: '"burst";r=5;t=1, "hour";r=0;t=60' },
    { ...wait(60_000), ...reset(60), remaining: 0 },
  ],
  "several that are used up: the last to reset": [
    { ratelimit: ['"burst";r=0;t=1', '"hour";r=0;t=60'] },
    { ...wait(60_000), ...reset(60), remaining: 0 },
  ],
  "the seventh draft": [
    { ratelimit: "limit=100, remaining=0, reset=30" },
    { ...wait(30_000), ...reset(30), limit: 100, remaining: 0 },
  ],
  "the sixth draft": [
    { "ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "0", "ratelimit-reset": "30" },
    { ...wait(30_000), ...reset(30), limit: 100, remaining: 0 },
  ],
  "a Unix time": [
    {
      "x-ratelimit-limit": "60",
      "x-ratelimit-remaining": "0",
      "x-ratelimit-reset": `${NOW / 1000 + 90}`,
    },
    { ...wait(90_000), ...reset(90), limit: 60, remaining: 0 },
  ],
  "a Unix time in milliseconds": [
    { "x-rate-limit-remaining": "3", "x-rate-limit-reset": `${NOW + 5000}` },
    { ...reset(5), remaining: 3 },
  ],
  "seconds until the reset": [
    { "x-ratelimit-remaining": "0", "x-ratelimit-reset": "17" },
    { ...wait(17_000), ...reset(17), remaining: 0 },
  ],
  "a part of a second": [
    { "x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1.25" },
    { ...wait(1250), ...reset(1.25), remaining: 0 },
  ],
  "a date of the reset": [
    { "x-ratelimit-remaining": "0", "x-ratelimit-reset": "2026-11-24T12:00:10Z" },
    { ...wait(10_000), ...reset(10), remaining: 0 },
  ],
  "both: Retry-After decides": [
    { "retry-after": "5", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "17" },
    { ...wait(5000), ...reset(17), remaining: 0 },
  ],
  "OpenAI's limits, of which the tokens are used up": [
    {
      ...{ "x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "150000" },
      ...{ "x-ratelimit-remaining-requests": "59", "x-ratelimit-remaining-tokens": "0" },
      ...{ "x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s" },
    },
    { ...wait(360_000), ...reset(360), limit: 150_000, remaining: 0 },
  ],
  "OpenAI's limits, of which both are used up": [
    {
      ...{ "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "0" },
      ...{ "x-ratelimit-reset-requests": "1h2m3.5s", "x-ratelimit-reset-tokens": "20ms" },
    },
    { ...wait(3_723_500), ...reset(3723.5), remaining: 0 },
  ],
  "OpenAI's limits, of which none is used up": [
    { "x-ratelimit-remaining-requests": "2", "x-ratelimit-reset-requests": "20ms" },
    { ...reset(0.02), remaining: 2 },
  ],
  "OpenAI's limit of a project": [
    {
      "x-ratelimit-remaining-tokens": "5",
      "x-ratelimit-remaining-project-tokens": "0",
      "x-ratelimit-reset-project-tokens": "3s",
    },
    { ...wait(3000), ...reset(3), remaining: 0 },
  ],
  "Azure's seconds": [
    { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "30" },
    { ...wait(30_000), ...reset(30), remaining: 0 },
  ],
  "Azure's numbers that say nothing": [
    {
      "x-ratelimit-limit-tokens": "-1",
      "x-ratelimit-remaining-tokens": "-1",
      "x-ratelimit-reset-tokens": "0",
    },
    {},
  ],
  "a duration that is none": [
    { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6 m" },
    { remaining: 0 },
  ],
  "HubSpot's window": [
    {
      ...{ "x-hubspot-ratelimit-max": "190", "x-hubspot-ratelimit-remaining": "0" },
      ...{ "x-hubspot-ratelimit-interval-milliseconds": "10000" },
      ...{ "x-hubspot-ratelimit-daily": "500000", "x-hubspot-ratelimit-daily-remaining": "1234" },
      ...{ "x-hubspot-ratelimit-secondly": "19", "x-hubspot-ratelimit-secondly-remaining": "0" },
    },
    { ...wait(10_000), ...reset(10), limit: 190, remaining: 0, perSeconds: 10 },
  ],
  "HubSpot's window that is not used up": [
    {
      ...{ "x-hubspot-ratelimit-max": "190", "x-hubspot-ratelimit-remaining": "180" },
      ...{ "x-hubspot-ratelimit-interval-milliseconds": "10000" },
    },
    { ...reset(10), limit: 190, remaining: 180, perSeconds: 10 },
  ],
  "HubSpot's day, which ends nobody knows when": [
    {
      ...{ "x-hubspot-ratelimit-max": "190", "x-hubspot-ratelimit-remaining": "0" },
      ...{ "x-hubspot-ratelimit-interval-milliseconds": "10000" },
      ...{ "x-hubspot-ratelimit-daily": "500000", "x-hubspot-ratelimit-daily-remaining": "0" },
    },
    { limit: 500_000, remaining: 0, perSeconds: 86_400 },
  ],
  "malformed fields": [
    { ratelimit: "(((", "ratelimit-policy": '"', "x-ratelimit-remaining": "none", "x-ratelimit-reset": "?" },
    {},
  ],
  "numbers below zero": [{ ratelimit: '"day";r=-1;t=-1', "x-ratelimit-remaining": "-1" }, {}],
};

for (const [what, [headers, expected]] of Object.entries(HEADERS)) {
  test(`a response with ${what}`, (t) => {
    const all = { ...NOTHING, ...expected };
    t.deepEqual(rateLimitFromHeaders(headers, NOW), all, "of node:http");
    const fetched = new Headers();
    for (const [name, value] of Object.entries(headers))
      for (const line of [value].flat()) fetched.append(name, line);
    t.deepEqual(rateLimitFromHeaders(fetched, NOW), all, "of fetch");
  });
}

test("RetryAfter takes what it says", (t) => {
  const { retryAfter } = rateLimitFromHeaders({ "retry-after": "30" });
  t.is(new RetryAfter(retryAfter ?? "1 day").forMs, 30_000);
});
