import { declaring, optional, show, wholeNumber } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import type { Gate, ResolvedValues } from "../gates/index.ts";
import { readDeclaration } from "./declaration.ts";
import { checkIdentifier } from "./job.ts";
import { isByCost } from "./limits.ts";
import type { AnyPolicy } from "./policy.ts";
import { compileResolver } from "./resolve.ts";

/** Options of {@link shared}. */
export interface SharedOptions {
  /**
   * As a policy's: of two definitions that live workers have, the one of the higher version is in force, and of equal
   * versions that of the worker which started last.
   * @default 0
   */
  version?: number | undefined;
}

/**
 * One limit for several policies: a partner's quota, a customer's cap, a machine.
 *
 * Declare it once, and name it among the `gates` of each policy that uses it. Their jobs are counted together, and shared out by
 * the same virtual time as the partitions of one policy. Its name is its gate's name in each of these policies, and its own in
 * `set-limit`, pages and metrics. A job counts for what the gate's `scope` gives in its policy: a key, `"policy"` for all jobs
 * of these policies, or by default the key of the partition. Its numbers are constants, because they must be the same for all.
 * An operator's limit changes them for one key. A `cost` is the job's, and may be a function of each policy's context.
 *
 * @throws {PolicyDefinitionError} if the gate has a name of its own, `perWorker`, or a number that is a function
 * @example
 * const shopify = shared("shopify", throttle({ rate: 2, per: "1 second", scope: (ctx: { shop: string }) => ctx.shop }));
 * const orders = definePolicy("orders", {
 *   context: (payload) => payload as { shop: string },
 *   partitionBy: (ctx) => ctx.shop,
 *   gates: [shopify], // and so in the policy "stock"
 * });
 */
export function shared<C, Kind extends string>(
  name: string,
  gate: Gate<C> & { readonly kind: Kind },
  options: SharedOptions = {},
): Gate<C> & { readonly kind: Kind } {
  declaring("", () => checkIdentifier("the first argument of shared", name));
  return declaring(`shared limit "${name}": `, () => {
    if (typeof gate?.resolve !== "function" || gate.shared !== undefined)
      throw new ArgumentError(`expected a gate, such as throttle({ … }), got ${show(gate)}`);
    if (gate.name !== gate.kind)
      throw new ArgumentError(`name of its gate must be left out, got ${show(gate.name)}: the limit has one`);
    if (name === "ahead") throw new ArgumentError('name must not be "ahead": that gate is the ahead bound');
    const { constants, functions } = gate;
    const computed = Object.keys(functions).filter((option) => option !== "scope" && option !== "cost");
    if (computed.length > 0)
      throw new ArgumentError(
        `${computed.join(", ")} must be a constant, got a function: all policies go by one number. ` +
          "Another number for one key is set by set-limit",
      );
    if (constants.per_worker === true)
      throw new ArgumentError(
        "perWorker must be left out, got true: no worker pool runs jobs of the limit itself",
      );
    const version = optional("version", options.version, wholeNumber(0));
    const named = isByCost(gate as Gate) ? withCost(gate as Gate) : NAMED;
    return Object.freeze({ ...gate, name, ...named, shared: asPolicy(name, limitOf(gate as Gate), version) });
  });
}

/** What a policy says of a gate that it only names: the numbers are the limit's own. */
const NOTHING = Object.freeze({});
const NAMED = { values: NOTHING, constants: NOTHING, resolve: () => NOTHING, overrides: NOTHING };

/** The same of a limit whose jobs say how many slots they take. */
function withCost({ values, constants, resolve, functions }: Gate) {
  const costOf = ({ cost }: ResolvedValues): ResolvedValues => ({ cost: cost as number });
  return {
    ...NAMED,
    values: values === null ? null : costOf(values),
    constants: "cost" in functions ? NOTHING : costOf(constants),
    resolve: (ctx: unknown) => costOf(resolve(ctx)),
  };
}

/** The gate of the limit itself: what it counts, and no more. */
function limitOf(gate: Gate): Gate {
  const { cost: _job, ...constants } = gate.constants;
  const { cost: _said, ...functions } = gate.functions;
  return Object.freeze({ ...gate, values: constants, constants, resolve: () => constants, functions });
}

/** The limit itself: a policy without tasks. */
function asPolicy(name: string, gate: Gate, version: number | undefined): AnyPolicy {
  const read = readDeclaration(name, {
    partitionBy: "key",
    version,
    gates: [Object.freeze({ ...gate, name })],
  });
  const declaration = Object.freeze({ ...read, tasks: Object.freeze([]) });
  return Object.freeze({
    identifier: name,
    task: () => {
      throw new ArgumentError(`"${name}" is a shared limit, which has no task: make the task with a policy`);
    },
    "~policy": Object.freeze({ declaration, resolver: compileResolver(declaration) }),
  });
}
