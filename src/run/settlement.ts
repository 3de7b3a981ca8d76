import type { Job } from "graphile-worker";
import { check, checkOptions, numberFromZero, optional, type Rule, show } from "../checks/options.ts";
import type { Settled } from "../db/engine.ts";
import { ArgumentError } from "../errors.ts";
import type { AnyPolicy, DispatchPolicyHelpers } from "../policy/policy.ts";

const aName: Rule = { expects: "the name of a throttle", accepts: (value) => typeof value === "string" };

/** What a run says that it cost. It is said in this process alone, and goes to the database with the job's release. */
export class Settlement {
  /** Undefined: nothing yet, so the estimate counts. */
  settled: Settled | undefined;
  readonly #policy: AnyPolicy;
  readonly #job: Job;
  #hasEnded = false;

  constructor(policy: AnyPolicy, job: Job) {
    this.#policy = policy;
    this.#job = job;
  }

  /** Documented at {@link DispatchPolicyHelpers.settle}. */
  settle(options: Parameters<DispatchPolicyHelpers["settle"]>[0]): void {
    checkOptions("settle", options, ["gate", "cost"]);
    const { gate, cost } = options;
    check("settle: cost", cost, numberFromZero);
    optional("settle: gate", gate, aName);
    if (gate !== undefined) checkThrottle(this.#policy, gate);
    if (this.#hasEnded)
      throw new ArgumentError(
        `settle: job ${this.#job.id} has ended, and its cost is settled; expected a call before the task's promise resolves or rejects`,
      );
    this.settled =
      gate === undefined ? { cost } : { ...this.settled, gates: { ...this.settled?.gates, [gate]: cost } };
  }

  /** The run ended: what it has said so far counts. */
  end(): void {
    this.#hasEnded = true;
  }
}

/** @throws {ArgumentError} unless the policy, as this process has it, has a throttle of this name */
function checkThrottle(policy: AnyPolicy, gate: string): void {
  const { gates, name } = policy["~policy"].declaration;
  const found = gates.find((one) => one.name === gate);
  if (found?.kind === "throttle") return;
  const throttles = gates.filter(({ kind }) => kind === "throttle").map((one) => show(one.name));
  const what = found
    ? `which counts the jobs in flight, whatever they cost`
    : `which policy ${show(name)} does not have`;
  const expected =
    throttles.length === 0
      ? "none, because the policy has no throttle"
      : `one of ${throttles.join(", ")}, or none to settle at each of them`;
  throw new ArgumentError(`settle: gate is ${show(gate)}, ${what}; expected ${expected}`);
}
