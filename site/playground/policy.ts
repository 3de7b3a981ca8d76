// The policy of a setup: as an object, which the engine runs, and as the TypeScript that a visitor copies.
import { exponential } from "../../src/policy/backoff.ts";
import { type AnyPolicy, definePolicy } from "../../src/policy/policy.ts";
import { isNight, nightOf, RETRY_AFTER_MS } from "./load.ts";
import type { Setup } from "./setup.ts";

export const POLICY = "call_partner";

interface Payload {
  readonly tenant: string;
  readonly account: string;
  readonly weight: number;
  readonly slots: number;
  readonly later: number;
  readonly shard: string;
}

/** What a job of this tenant carries. */
export function payloadOf(setup: Setup, tenant: number, name: string): Payload {
  const { tenants, shards, weight, later } = setup;
  return {
    tenant: name,
    account: `account ${Math.floor(tenant / 2) + 1}`,
    weight: tenant === tenants - 1 ? weight : 1,
    slots: tenant === tenants - 1 ? costOf(setup) : 1,
    later: tenant === tenants - 1 ? later : 0,
    shard: tenant % 2 === 0 || shards === 1 ? "one" : "two",
  };
}

/** Of a fixed cap, and no more than it has: a dearer job would be refused. */
const costOf = ({ cap, cost, max }: Setup): number =>
  cap === "fixed" ? Math.min(cost, Math.max(max, 1)) : 1;

/** The shards that are ticked, each by itself. */
export const shardsOf = ({ shards }: Setup): readonly (string | null)[] =>
  shards === 1 ? [null] : ["one", "two"];

/** The options of a gate: numbers and texts, as they stand in the policy. */
interface GateOptions {
  readonly kind: "throttle" | "concurrency" | "adaptiveConcurrency";
  readonly options: Readonly<Record<string, number | string>>;
  /** A job says how many slots it takes. */
  readonly byCost?: boolean;
}

const TARGET_LAG_MS = 300;

function gatesOf(setup: Setup): readonly GateOptions[] {
  const { rate, burst, max, cap } = setup;
  const gates: GateOptions[] = [];
  if (rate > 0)
    gates.push({ kind: "throttle", options: { rate, per: "1 second", ...(burst > 0 && { burst }) } });
  if (max > 0 && cap === "fixed")
    gates.push({ kind: "concurrency", options: { max }, byCost: costOf(setup) > 1 });
  if (max > 0 && cap === "adaptive")
    gates.push({ kind: "adaptiveConcurrency", options: { initialMax: max, targetLagMs: TARGET_LAG_MS } });
  return gates;
}

export function policyOf(setup: Setup): AnyPolicy {
  const { scope, weight, later, share, shards, failing } = setup;
  const scoped = {
    tenant: {},
    account: { scope: (ctx: Payload) => ctx.account },
    policy: { scope: "policy" },
  }[scope];
  const names = contextOf(setup);
  const options = {
    ...(names.length > 0 && {
      context: (payload: Payload) => Object.fromEntries(names.map((name) => [name, payload[name]])),
    }),
    partitionBy: "tenant",
    ...(weight > 1 && { weight: (ctx: Payload) => ctx.weight }),
    ...(later > 0 && { class: (ctx: Payload) => ctx.later }),
    ...(later > 0 && share > 0 && { classShare: { [later]: share / 100 } }),
    ...(shards > 1 && { shardBy: (ctx: Payload) => ctx.shard }),
    gates: (make: Record<GateOptions["kind"], (given: object) => unknown>) =>
      gatesOf(setup).map(({ kind, options, byCost }) =>
        make[kind]({ ...options, ...(byCost && { cost: (ctx: Payload) => ctx.slots }), ...scoped }),
      ),
    ...(failing > 0 && { backoff: BACKOFF }),
  };
  return definePolicy(POLICY, options as never);
}

/** 2, 4, 8, 16 … seconds. */
const BACKOFF = exponential({ base: "2 seconds" });

/** The same policy as its file would be. */
export function textOf(setup: Setup): string {
  const { failing, refused, later, share } = setup;
  const helpers = ["definePolicy", failing > 0 && "exponential"].filter(Boolean);
  const kinds = gatesOf(setup).map(({ kind }) => kind);
  const context = contextOf(setup);
  const lines = [
    "// policies.ts",
    `import { ${helpers.join(", ")} } from "graphile-worker-dispatch-policy";`,
    context.length > 0 && 'import { z } from "zod";',
    "",
    `export const callPartner = definePolicy("${POLICY}", {`,
    context.length > 0 && `  payload: z.object({ tenant: z.string(), ${context.map(asSchema).join(", ")} }),`,
    context.length > 0 && `  context: ({ ${context.join(", ")} }) => ({ ${context.join(", ")} }),`,
    '  partitionBy: "tenant",',
    context.includes("weight") && "  weight: (ctx) => ctx.weight,",
    later > 0 && "  class: (ctx) => ctx.later, // lower ones go first",
    later > 0 && share > 0 && `  classShare: { ${later}: ${share / 100} },`,
    context.includes("shard") && "  shardBy: (ctx) => ctx.shard,",
    kinds.length > 0 && `  gates: ({ ${kinds.join(", ")} }) => [`,
    ...gatesOf(setup).map((gate) => `    ${gateText(gate, setup)},`),
    kinds.length > 0 && "  ],",
    failing > 0 && '  backoff: exponential({ base: "2 seconds" }), // 2, 4, 8, 16 … seconds',
    "});",
    ...(refused > 0 ? TASK : []),
    ...(isNight(setup) ? nightText(setup) : []),
  ];
  return `${lines.filter((line) => line !== false).join("\n")}\n`;
}

/** What of the payload the policy's functions read. */
function contextOf(setup: Setup): readonly (keyof Payload)[] {
  const { scope, weight, later, shards } = setup;
  const used = {
    account: scope === "account",
    weight: weight > 1,
    slots: costOf(setup) > 1,
    later: later > 0,
    shard: shards > 1,
  } as const;
  return (["account", "weight", "slots", "later", "shard"] as const).filter((name) => used[name]);
}

const NUMBERS = ["weight", "slots", "later"];
const asSchema = (name: string) => `${name}: z.${NUMBERS.includes(name) ? "number" : "string"}()`;

function gateText({ kind, options, byCost }: GateOptions, { scope }: Setup): string {
  const given = Object.entries(options).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  if (byCost) given.push("cost: (ctx) => ctx.slots");
  if (scope === "account") given.push("scope: (ctx) => ctx.account");
  if (scope === "policy") given.push('scope: "policy"');
  return `${kind}({ ${given.join(", ")} })`;
}

const TASK = [
  "",
  "// tasks/call_partner.ts",
  'import { RetryAfter } from "graphile-worker-dispatch-policy";',
  'import { callPartner } from "../policies.ts";',
  "",
  "export default callPartner.task(async () => {",
  '  const response = await fetch("https://partner.example/");',
  `  if (response.status === 429) throw new RetryAfter("${RETRY_AFTER_MS / 1000} seconds", { reason: "429" });`,
  "});",
];

const dateOf = (ms: number) => `new Date(Date.now() + ${ms.toLocaleString("en-US").replaceAll(",", "_")})`;

function nightText(setup: Setup): readonly string[] {
  const { from, until } = nightOf(setup);
  return [
    "",
    "// night-tariff.ts",
    `// for each night: that of the playground begins ${from / 1000} s after the start, and ends at ${until / 1000} s`,
    'import { makePolicyUtils } from "graphile-worker-dispatch-policy";',
    'import preset from "./graphile.config.ts";',
    "",
    "const utils = await makePolicyUtils({ preset });",
    "await utils.setLimit({",
    `  policy: "${POLICY}", gate: "throttle", set: { rate: ${setup.night} }, reason: "night tariff",`,
    `  from: ${dateOf(from)}, until: ${dateOf(until)},`,
    "});",
    "await utils.release();",
  ];
}
