// The policy of a setup, or its two: as an object, which the engine runs, and as the TypeScript that a visitor copies.
import { adaptiveConcurrency, concurrency, throttle } from "../../src/gates/all.ts";
import { exponential } from "../../src/policy/backoff.ts";
import { type AnyPolicy, definePolicy } from "../../src/policy/policy.ts";
import { shared } from "../../src/policy/shared.ts";
import { isNight, nightOf, RETRY_AFTER_MS } from "./load.ts";
import type { Setup } from "./setup.ts";

const POLICY = "call_partner";
const POLICIES = { callPartner: POLICY, syncPartner: "sync_partner" } as const;
const LIMITS = {
  throttle: "partnerRate",
  concurrency: "partnerSlots",
  adaptiveConcurrency: "partnerSlots",
} as const;
const limitName = (kind: GateOptions["kind"]) =>
  LIMITS[kind].replace(/[A-Z]/, (it) => `_${it.toLowerCase()}`);

/** The name of a tenant's policy. */
export const policyNameOf = ({ policies }: Setup, tenant: number): string =>
  Object.values(POLICIES)[tenant % policies] as string;

/** The throttle, as `setLimit` names it. A shared limit is a policy of its own. */
export const throttleOf = ({ policies }: Setup): { policy: string; gate: string } =>
  policies > 1
    ? { policy: limitName("throttle"), gate: limitName("throttle") }
    : { policy: POLICY, gate: "throttle" };

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

export function policiesOf(setup: Setup): readonly AnyPolicy[] {
  const { scope, weight, later, shards, failing, policies, newest } = setup;
  const scoped = {
    tenant: {},
    account: { scope: (ctx: Payload) => ctx.account },
    policy: { scope: "policy" },
  }[scope];
  const names = contextOf(setup);
  const share = shareOf(setup);
  const gates = gatesOf(setup).map(({ kind, options, byCost }) => {
    const gate = MAKE[kind]({ ...options, ...(byCost && { cost: (ctx: Payload) => ctx.slots }), ...scoped });
    return policies > 1 ? shared(limitName(kind), gate as Parameters<typeof shared>[1]) : gate;
  });
  const options = {
    ...(names.length > 0 && {
      context: (payload: Payload) => Object.fromEntries(names.map((name) => [name, payload[name]])),
    }),
    partitionBy: "tenant",
    ...(weight > 1 && { weight: (ctx: Payload) => ctx.weight }),
    ...(later > 0 && { class: (ctx: Payload) => ctx.later }),
    ...(share > 0 && { classShare: { [later]: share / 100 } }),
    ...(shards > 1 && { shardBy: (ctx: Payload) => ctx.shard }),
    gates,
    ...(newest !== "keep" && { whenRunning: WHEN_RUNNING[newest] }),
    ...(failing > 0 && { backoff: BACKOFF }),
  };
  return Object.values(POLICIES)
    .slice(0, policies)
    .map((name) => definePolicy(name, options as never));
}

const MAKE = { throttle, concurrency, adaptiveConcurrency } as unknown as Readonly<
  Record<GateOptions["kind"], (given: object) => unknown>
>;
const WHEN_RUNNING = { cancel: "cancel", later: { cancel: true, minRun: "1 second" } } as const;

/** What is kept for the class, in percent. A policy with shared limits has no such share. */
const shareOf = ({ later, share, policies }: Setup): number => (later > 0 && policies === 1 ? share : 0);

/** 2, 4, 8, 16 … seconds. */
const BACKOFF = exponential({ base: "2 seconds" });

/** The same as files would be. */
export function textOf(setup: Setup): string {
  const { failing, refused, policies } = setup;
  const gates = gatesOf(setup);
  const context = contextOf(setup);
  const isShared = policies > 1 && gates.length > 0;
  const shares = isShared ? ["shared", ...gates.map(({ kind }) => kind)] : [];
  const helpers = ["definePolicy", ...(failing > 0 ? ["exponential"] : []), ...shares].sort();
  const asType = context.map((name) => `${name}: ${typeOf(name)}`).join("; ");
  const lines = [
    "// policies.ts",
    `import { ${helpers.join(", ")} } from "graphile-worker-dispatch-policy";`,
    context.length > 0 && 'import { z } from "zod";',
    ...(isShared ? [""] : []),
    isShared && context.length > 0 && `type Context = { ${asType} };`,
    ...(isShared
      ? gates.map(
          (gate) =>
            `const ${LIMITS[gate.kind]} = shared("${limitName(gate.kind)}", ${gateText(gate, setup)});`,
        )
      : []),
    ...Object.entries(POLICIES)
      .slice(0, policies)
      .flatMap(([variable, name]) => policyText(setup, variable, name)),
    ...(refused > 0 ? TASK : []),
    ...(isNight(setup) ? nightText(setup) : []),
  ];
  return `${lines.filter((line) => line !== false).join("\n")}\n`;
}

function policyText(setup: Setup, variable: string, name: string): readonly (string | false)[] {
  const { failing, later, policies, newest } = setup;
  const kinds = gatesOf(setup).map(({ kind }) => kind);
  const context = contextOf(setup);
  const share = shareOf(setup);
  return [
    "",
    `export const ${variable} = definePolicy("${name}", {`,
    context.length > 0 && `  payload: z.object({ tenant: z.string(), ${context.map(asSchema).join(", ")} }),`,
    context.length > 0 && `  context: ({ ${context.join(", ")} }) => ({ ${context.join(", ")} }),`,
    '  partitionBy: "tenant",',
    context.includes("weight") && "  weight: (ctx) => ctx.weight,",
    later > 0 && "  class: (ctx) => ctx.later, // lower ones go first",
    share > 0 && `  classShare: { ${later}: ${share / 100} },`,
    context.includes("shard") && "  shardBy: (ctx) => ctx.shard,",
    ...(policies > 1
      ? [kinds.length > 0 && `  gates: [${kinds.map((kind) => LIMITS[kind]).join(", ")}],`]
      : [
          kinds.length > 0 && `  gates: ({ ${kinds.join(", ")} }) => [`,
          ...gatesOf(setup).map((gate) => `    ${gateText(gate, setup)},`),
          kinds.length > 0 && "  ],",
        ]),
    newest === "cancel" && '  whenRunning: "cancel", // jobs are added with the jobKey tenant',
    newest === "later" &&
      '  whenRunning: { cancel: true, minRun: "1 second" }, // jobs are added with the jobKey tenant',
    failing > 0 && '  backoff: exponential({ base: "2 seconds" }), // 2, 4, 8, 16 … seconds',
    "});",
  ];
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
const typeOf = (name: string) => (NUMBERS.includes(name) ? "number" : "string");
const asSchema = (name: string) => `${name}: z.${typeOf(name)}()`;

function gateText({ kind, options, byCost }: GateOptions, { scope, policies }: Setup): string {
  const ctx = policies > 1 ? "(ctx: Context)" : "(ctx)";
  const given = Object.entries(options).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  if (byCost) given.push(`cost: ${ctx} => ctx.slots`);
  if (scope === "account") given.push(`scope: ${ctx} => ctx.account`);
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
  const { policy, gate } = throttleOf(setup);
  return [
    "",
    "// night-tariff.ts",
    `// for each night: that of the playground begins ${from / 1000} s after the start, and ends at ${until / 1000} s`,
    'import { makePolicyUtils } from "graphile-worker-dispatch-policy";',
    'import preset from "./graphile.config.ts";',
    "",
    "const utils = await makePolicyUtils({ preset });",
    "await utils.setLimit({",
    `  policy: "${policy}", gate: "${gate}", set: { rate: ${setup.night} }, reason: "night tariff",`,
    `  from: ${dateOf(from)}, until: ${dateOf(until)},`,
    "});",
    "await utils.release();",
  ];
}
