// docs/policies.md: its recipes keep to the limits of its table, and know a refusal when they see one.
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, RetryAfter } from "../../src/index.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";
import { tablesOf } from "../helpers/tables.ts";
import { emptyWorld } from "./world.ts";

const PAGE = "docs/policies.md";
// biome-ignore lint/suspicious/noExplicitAny: the modules of a page
type Module = Record<string, any>;

async function recipes(t: ExecutionContext) {
  const project = await readersProject(t);
  const files = await writeFiles(project, await blocksOf(PAGE));
  const load = async (name: string) => (await import(path.join(project, name))) as Module;
  return { files, load };
}

/** A policy of the page, and what its table says that it admits at most. */
interface Case {
  readonly policy: string;
  /** The partitions by turns. */
  readonly payloads: readonly object[];
  /** Seconds between two passes, and of the window that is counted. */
  readonly step: number;
  readonly window: number;
  /** At most so many jobs in any window, and at least so many in one. */
  readonly most: number;
  readonly least: number;
  /** A gate that would be full, because no job ends here. */
  readonly lifts?: string;
}

const stripe = (endpoint: string) => ({ account: "a", endpoint, refund: "r", charge: "c" });
const airtable = (base: string) => ({ base, user: "u" });
const slack = (tier: number) => ({ workspace: "w", method: "m", tier });
const CASES: Readonly<Record<string, Case>> = {
  "Stripe: an endpoint": {
    ...{ policy: "stripe", payloads: [stripe("e")], step: 0.02, window: 1, most: 21, least: 19 },
  },
  "Stripe: the account": {
    ...{ policy: "stripe", payloads: ["e", "f", "g", "h", "i", "j"].map(stripe) },
    ...{ step: 0.01, window: 1, most: 81, least: 75 },
  },
  "Shopify: points": {
    ...{ policy: "shopify", payloads: [{ store: "s", plan: "standard", points: 30 }] },
    ...{ step: 0.1, window: 1, most: 6, least: 5 },
  },
  "HubSpot: ten seconds": {
    ...{ policy: "hubspot", payloads: [{ account: "a" }], step: 0.5, window: 10, most: 180, least: 180 },
  },
  "GitHub: a minute": {
    ...{ policy: "github", payloads: [{ installation: "i" }], lifts: "concurrency" },
    ...{ step: 1, window: 60, most: 150, least: 150 },
  },
  "GitHub: at once": {
    ...{ policy: "github", payloads: [{ installation: "i" }], step: 1, window: 10, most: 20, least: 20 },
  },
  "Slack: a channel": {
    ...{ policy: "slack_post", payloads: [{ workspace: "w", channel: "c" }] },
    ...{ step: 0.1, window: 1.1, most: 1, least: 1 },
  },
  "Slack: a tier": {
    ...{ policy: "slack_method", payloads: [slack(2)], step: 1, window: 60, most: 20, least: 20 },
  },
  "Twilio: segments": {
    ...{ policy: "twilio", payloads: [{ account: "a", from: "f", segments: 2 }] },
    ...{ step: 0.25, window: 2, most: 1, least: 1 },
  },
  "OpenAI: tokens": {
    ...{ policy: "openai", payloads: [{ tenant: "t", model: "m", tokens: 3000 }] },
    ...{ step: 1, window: 60, most: 30, least: 30 },
  },
  "OpenAI: requests": {
    ...{ policy: "openai", payloads: [{ tenant: "t", model: "n", tokens: 1 }] },
    ...{ step: 1, window: 60, most: 450, least: 450 },
  },
  "Salesforce: at once": {
    ...{ policy: "salesforce", payloads: [{ org: "o", perDay: 80_000 }] },
    ...{ step: 1, window: 10, most: 20, least: 20 },
  },
  "Airtable: a base": {
    ...{ policy: "airtable", payloads: [airtable("b")], step: 0.05, window: 1, most: 5, least: 4 },
  },
  "Airtable: a user": {
    ...{ policy: "airtable", payloads: Array.from({ length: 15 }, (_, n) => airtable(`b${n}`)) },
    ...{ step: 0.01, window: 1, most: 46, least: 42 },
  },
};

test("the recipes keep to the limits of the table, and use them", async (t) => {
  t.timeout(5 * 60_000);
  const { files, load } = await recipes(t);
  t.is(files.length, 10);
  const modules = await Promise.all(files.filter((name) => name !== "send-refund.ts").map(load));
  const policies = modules
    .flatMap((module) => Object.values(module))
    .filter((one) => "~policy" in Object(one));
  for (const [what, it] of Object.entries(CASES)) {
    const { utils } = await emptyWorld(t, policies as AnyPolicy[]);
    const count = 4 * it.most;
    const specs = Array.from({ length: count }, (_, n) => ({
      identifier: it.policy,
      payload: it.payloads[n % it.payloads.length],
    }));
    await utils.addJobs(specs as never);
    if (it.lifts) await utils.setLimit({ policy: it.policy, gate: it.lifts, set: { max: 10_000 } });
    const start = Date.now() + 60_000;
    const times: number[] = [];
    const steps = Math.ceil((2.5 * it.window) / it.step);
    let next: Date | null = new Date(start);
    for (let n = 0; n < steps; n++) {
      const ms = Math.round(n * it.step * 1000);
      // a pass says when the next one may admit something: of those before, a quarter shows that it admits nothing
      const mayAdmit = next !== null && start + ms >= next.getTime();
      if (!mayAdmit && n % 4 > 0) continue;
      const pass = await utils.tick({ policy: it.policy, now: new Date(start + ms) });
      next = pass.nextEligibleAt;
      for (let job = 0; job < pass.admitted; job++) times.push(ms);
    }
    const end = it.window * 1000;
    const most = Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + end).length));
    t.true(most <= it.most && most >= it.least, `${what}: ${most}`);
  }
});

test("the table names each recipe, with its numbers", async (t) => {
  const [, ...rows] = (await tablesOf(PAGE))[0]!;
  const admits = (name: string) => rows.find(([api]) => api!.startsWith(`[${name}`))!.at(-1)!;
  for (const [what, { most }] of Object.entries(CASES)) {
    const [name] = what.split(":") as [string];
    if (["OpenAI", "Slack", "Twilio", "Shopify"].includes(name)) continue; // in other words
    t.regex(admits(name), new RegExp(`\\b${most}\\b`), what);
  }
  t.is(rows.length, 9);
});

test("a refusal holds for as long as the API asks", async (t) => {
  const { load } = await recipes(t);
  const answer = (status: number, headers: Record<string, string> = {}) =>
    new Response(null, { status, headers });
  const nowSeconds = Math.floor(Date.now() / 1000);
  const REFUSALS: readonly (readonly [string, string, readonly unknown[], number | null])[] = [
    ["stripe.ts", "checkStripe", [answer(429)], 2000],
    ["stripe.ts", "checkStripe", [answer(402)], null],
    ["shopify.ts", "checkShopify", [{ errors: [{ message: "Throttled" }] }], 2000],
    ["shopify.ts", "checkShopify", [{}], null],
    ["hubspot.ts", "checkHubspot", [answer(429), { policyName: "TEN_SECONDLY_ROLLING" }], 10_000],
    ["hubspot.ts", "checkHubspot", [answer(429), { policyName: "DAILY_LIMIT" }], 3_600_000],
    [
      ...(["hubspot.ts", "checkHubspot"] as const),
      [
        answer(429, {
          "x-hubspot-ratelimit-remaining": "0",
          "x-hubspot-ratelimit-interval-milliseconds": "11000",
        }),
        { policyName: "TEN_SECONDLY_ROLLING" },
      ],
      11_000,
    ],
    ["github.ts", "checkGithub", [answer(403, { "retry-after": "30" }), ""], 30_000],
    ["github.ts", "checkGithub", [answer(403), "You have exceeded a secondary rate limit"], 60_000],
    ["github.ts", "checkGithub", [answer(403), "Resource not accessible by integration"], null],
    ["slack.ts", "checkSlack", [answer(429, { "retry-after": "10" })], 10_000],
    ["twilio.ts", "checkTwilio", [answer(429)], 5000],
    ["openai.ts", "checkOpenai", [answer(429)], 20_000],
    [
      ...(["openai.ts", "checkOpenai"] as const),
      [answer(429, { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s" })],
      360_000,
    ],
    ["salesforce.ts", "checkSalesforce", [[{ errorCode: "REQUEST_LIMIT_EXCEEDED" }]], 60_000],
    ["salesforce.ts", "checkSalesforce", [[{ errorCode: "INVALID_FIELD" }]], null],
    ["airtable.ts", "checkAirtable", [answer(429)], 30_000],
  ];
  for (const [file, name, args, forMs] of REFUSALS) {
    const check = (await load(file))[name] as (...args: unknown[]) => void;
    const what = `${name} ${JSON.stringify(args)}`;
    if (forMs === null) t.notThrows(() => check(...args), what);
    else t.is(t.throws(() => check(...args), { instanceOf: RetryAfter }, what)!.forMs, forMs, what);
  }
  const { checkGithub } = await load("github.ts");
  const reset = { "x-ratelimit-remaining": "0", "x-ratelimit-reset": `${nowSeconds + 600}` };
  const { forMs } = t.throws(() => checkGithub(answer(403, reset), ""), { instanceOf: RetryAfter })!;
  t.true(forMs! > 590_000 && forMs! <= 600_000, `${forMs}`);
});
