// What changes limits.
import { checkOptions, optional, positiveDuration } from "../../checks/options.ts";
import { grouped, some } from "../../counted.ts";
import { type GateOverrides, overridableFields } from "../../gates/index.ts";
import type { JsonOf } from "../../policy/json.ts";
import { actOf, call } from "../call.ts";
import { limitInWords } from "../gate-words.ts";
import { type RefreshContextOptions, refreshContext } from "../refresh-context.ts";
import type {
  ByPolicy,
  Changed,
  ContextValues,
  DryRun,
  LimiterTarget,
  LimitTarget,
  Reach,
  Stored,
  Why,
} from "../targets.ts";
import type { Verb } from "../verb.ts";
import { atTime, limitedBy, reachIn, valuesOf } from "../words.ts";
import { HOW_LONG, LIMIT, LIMITER, ONE_KEY, POLICY } from "./help.ts";

/** New values for a limit. For those that are left out, or undefined, the policy's own apply. */
export type LimitValues = GateOverrides;

/**
 * The options of `setLimit`: a gate, one of its limiters by `key`, or those of some partitions by `where`. They have the numbers
 * from `from` until `until`.
 */
export type SetLimitOptions = LimitTarget & {
  /** The new values: at least one, and only those that the gate's kind has. */
  set: LimitValues;
  /** When it begins. Default: now. */
  from?: Date | undefined;
  /** When it ends. Default: it lasts until `clearLimit`. */
  until?: Date | undefined;
} & Why &
  DryRun;

/** What a partner says of its limit. */
export type Remaining = {
  /** What is left of the partner's limit, in tokens of the throttle: 0 to 1e12. */
  remaining: number;
  /**
   * When the partner's limit is whole again. No more than `remaining` goes until then. Default, and null: the partner does
   * not say it, and the throttle gains by its own numbers from now on.
   */
  resetAt?: Date | null | undefined;
};

/** What `sync` has made of a throttle. */
export interface Synced {
  /** False: the throttle had no more than that, or another transaction has it locked. */
  lowered: boolean;
  /** What it has now; below 0 it is in debt. Null: another transaction has it locked. */
  tokens: number | null;
}

export interface LimitVerbs {
  /**
   * Overrides a gate's numbers, from now (or `from`) until `until`, or without it until {@link clearLimit}.
   *
   * `set` has values by the gate's kind. For values that are left out, the policy's apply. A throttle has `rate` (tokens),
   * `per` (a duration such as "1 minute"; not with a calendar window) and `burst` (tokens; not with a window). A concurrency
   * gate has `max` (jobs). An adaptive one has `initialMax`, `min` and `max` (jobs) and `targetLagMs` (milliseconds).
   *
   * `key` is the scope key: the partition's for a gate over the partition, none for one over the policy. For a gate over the
   * partition, `where` names values in the context instead, such as `{ plan: "free" }`. Then the limit is for the partitions
   * that have them, also for those to come. Without both it is for every key of the gate. A limit of a key goes before one of a
   * context, and that before one of every key. Of two contexts that fit, the limit that was set last counts. A new limit
   * replaces those of the same target that are in force, or that would begin before its end.
   *
   * `matched` counts the existing limiters with the key, or partitions with the context. It is 0 if the key is misspelt, or if no job has had it yet. Then
   * `stored` is true: the limit applies as soon as a job has the key. {@link limits} shows it, with `seen` false.
   *
   * @throws {ArgumentError} if the policy has no such gate, the gate no such value, or `until` is past or not after `from`
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example
   * const acme = { policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 0 }, by: "ana" };
   * const { partitions, staged } = await utils.setLimit({ ...acme, dryRun: true });
   * await utils.setLimit(acme);
   */
  setLimit(options: ByPolicy<SetLimitOptions>): Promise<Stored & Reach>;

  /**
   * Ends the limits that {@link setLimit} set for the same target: the one in force, and future ones.
   *
   * Without `key` and `where` it ends the limit for every key, but not those of single keys and contexts. `changed` counts the
   * limits that it ended.
   *
   * @throws {ArgumentError} if the policy has no such gate
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.clearLimit({ policy: "fetch_endpoint", gate: "account", key: "acme" });
   */
  clearLimit(options: ByPolicy<LimitTarget & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * Changes what the context of partitions holds, and works their limits, weights and scope keys out anew.
   *
   * Without it a change in the application, such as another plan, counts from the partition's next job. It is for one partition,
   * for those whose context has the values of `where`, or for all of the policy. `context` has the values that change, and the
   * others stay. An empty one works out the limits again from the stored contexts. The next pass applies them. A job that is
   * added later brings its own context.
   *
   * `matched` counts the partitions, `changed` those whose context or limits differ now. It works in steps of 1,000
   * partitions, each a transaction. If a function of the policy throws, the earlier steps stay.
   *
   * If these utils do not have the policy, SQL does it in one transaction. It can only if no limit, scope or weight of the
   * policy is a function.
   *
   * @throws {ArgumentError} if another definition of the policy is in force, or if these utils would need its functions and do
   * not have them
   * @throws {PayloadError} if a gate's function throws for such a context
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.refreshContext({ policy: "fetch_endpoint", where: { account: "acme" }, context: { plan: "pro" } });
   */
  refreshContext<C extends JsonOf<C>>(options: ByPolicy<RefreshContextOptions<C>>): Promise<Changed & Reach>;

  /**
   * Takes `cost` tokens (0 to 1e12, default 1) from a throttle, for work that is no job. It waits for no tokens: without enough
   * it takes none, and `retryAt` says when to ask again.
   *
   * It answers the same if another transaction has the throttle locked, after 250 ms at most. `key` is the scope key; a throttle
   * over the policy takes none. A cost above the capacity is taken from a full bucket. A shadow gate always says yes, and counts
   * a would-be denial if it has too few tokens. A key that no job has had has a full bucket. If the gate's numbers depend on the
   * context, only a job can tell them: then a job must have had the key before.
   *
   * @throws {ArgumentError} if the gate is no throttle, the key does not fit its scope, or only a job can tell its numbers
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { taken, retryAt } = await utils.take({ policy: "fetch_endpoint", gate: "all" });
   */
  take(
    options: ByPolicy<LimiterTarget & { cost?: number | undefined }>,
  ): Promise<{ taken: boolean; retryAt: Date | null }>;

  /**
   * Lowers a throttle to what a partner says is left of its limit (0 to 1e12 tokens), and never raises it. `tokens` is what the
   * throttle has then.
   *
   * If another transaction has the throttle locked for longer than 250 ms, nothing is lowered. Without `resetAt` a bucket gains
   * on by its own rate, and what a window was lowered by counts as spent now. With `resetAt`, a Date to come by the database's
   * clock, no more than `remaining` goes until then. What a bucket gains until then is taken off as well, so it may be in debt,
   * but for its `per` at most. A calendar window goes by its calendar. If `resetAt` has passed, nothing is lowered. It leaves no
   * row in the audit, because each answer of a partner may call it.
   *
   * `key` is the scope key; a throttle over the policy takes none. A key that no job has had gets a bucket, as by
   * {@link take}.
   *
   * @throws {ArgumentError} if the gate is no throttle, the key does not fit its scope, or only a job can tell its numbers
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example const { lowered, tokens } = await utils.sync({ policy: "fetch_endpoint", gate: "all", remaining: 3 });
   */
  sync(options: ByPolicy<LimiterTarget & Remaining>): Promise<Synced>;
}

/**
 * The new values by their names in the database.
 *
 * @throws {ArgumentError} naming the verb and the value. SQL checks whether the gate has it
 */
export function columnsOf(verb: string, set: LimitValues): Readonly<Record<string, unknown>> {
  checkOptions(`${verb}: set`, set, Object.keys(overridableFields));
  optional(`${verb}: set.per`, set.per, positiveDuration);
  const given = Object.entries(overridableFields).flatMap(([option, { column, toColumn }]) => {
    const value = set[option as keyof LimitValues];
    return value === undefined ? [] : [[column, toColumn ? toColumn(value as never) : value] as const];
  });
  return Object.fromEntries(given);
}

const asJson = (where: ContextValues | undefined) =>
  where === undefined ? undefined : JSON.stringify(where);

const limitOf = ({ policy, gate, key, where }: LimitTarget) => ({
  ...{ policy, gate },
  ...{ key: key ?? null, where: where ?? null },
});

const setLimitVerb: Verb<SetLimitOptions, Stored & Reach> = {
  summary: "change a gate's numbers",
  examples: [
    [
      '--policy fetch_endpoint --gate account --key acme --max 2 --until "1 hour"',
      "two jobs of acme at once",
    ],
    ["--policy fetch_endpoint --gate throttle --rate 0", "nothing goes, until clear-limit"],
    ["--policy fetch_endpoint --gate throttle --where plan=free --rate 5", "partitions with this context"],
  ],
  options: {
    ...LIMIT,
    set: { meaning: "the new numbers", required: true },
    from: { meaning: "when it begins: a time, or a duration from now", default: "now" },
    until: { meaning: "when it ends", default: "clear-limit" },
  },
  wrong: ({ set }) =>
    Object.values(set ?? {}).every((value) => value === undefined) &&
    "give at least one number, such as --max or --rate",
  dryRun: "reach",
  undo: "clearLimit",
  args: ({ policy, gate, key, where, set, from, until, reason, by }) => ({
    ...{ policy, gate, key, from, until, reason, by },
    where: asJson(where),
    set: JSON.stringify(columnsOf("setLimit", set)),
  }),
  event: (options, changed) => {
    const { set, from = null, until = null } = options;
    return ["dispatchPolicy:limit", { ...limitOf(options), set, from, until, ...actOf(changed, options) }];
  },
  did: (options, _, when) => `Set ${limitSet(options, when)}.`,
  would: (options, reach) => `Would set ${limitSet(options)}: ${reachIn(reach)}.`,
  note: ({ where }, { stored }) =>
    stored &&
    (where
      ? "No partition has this context yet: the limit applies as soon as one has."
      : "No job has had this key yet: the limit applies as soon as one has."),
  form: {
    label: "Change limit…",
    about:
      "Gives a gate other numbers: for one key, for the partitions of a context, or for all. For numbers that are left out, the policy's own apply.",
    target: ["policy"],
    fields: [
      { option: "gate", label: "Gate", isRequired: true },
      { option: "key", label: "Key", hint: "empty: every key of the gate; " },
      {
        ...{ option: "where", label: "Partitions whose context has" },
        hint: 'as JSON, such as {"plan": "free"}, in place of a key',
      },
      { option: "set", label: "" },
      { option: "from", label: "Begins after", hint: `${HOW_LONG}; empty: at once` },
      { option: "until", label: "For how long", hint: HOW_LONG, open: "until it is cleared" },
    ],
  },
};

function limitSet(
  { gate, key, where, set, from, until }: SetLimitOptions,
  when = `${from ? `from ${atTime(from)} ` : ""}${until ? `until ${atTime(until)}` : "until clear-limit"}`,
): string {
  return `the limit of gate ${gate} for ${limitedBy({ key, where })} to ${limitInWords(set)}, ${when}`;
}

const clearLimitVerb: Verb<LimitTarget & Why & DryRun, Changed & Reach> = {
  summary: "end such a change",
  about:
    "Without --key and --where it ends the limit for every key, but not those of single keys and contexts.",
  examples: [["--policy fetch_endpoint --gate account --key acme", "the limit of acme"]],
  options: LIMIT,
  dryRun: "reach",
  args: ({ where, policy, gate, key, reason, by }) => ({
    policy,
    gate,
    key,
    reason,
    by,
    where: asJson(where),
  }),
  event: (options, cleared) => [
    "dispatchPolicy:limit",
    { ...limitOf(options), set: null, from: null, until: null, ...actOf(cleared, options) },
  ],
  did: (options, { changed }) =>
    changed > 0 ? `Ended ${limitCleared(options)}.` : `No ${limitCleared(options).slice(4)} was set.`,
  would: (options, reach) =>
    reach.matched > 0
      ? `Would end ${limitCleared(options)}: ${reachIn(reach)}.`
      : `No ${limitCleared(options).slice(4)} is set.`,
  form: {
    label: "Clear limit",
    about: "Ends what was set for the same keys, also what was to begin later.",
    target: ["policy", "gate", "key", "where"],
  },
};

const limitCleared = ({ gate, key, where }: LimitTarget) =>
  `the limit of gate ${gate} for ${limitedBy({ key, where })}`;

const refreshContextVerb: Verb<RefreshContextOptions, Changed & Reach> = {
  summary: "change what partitions have in their context",
  about:
    "A later job brings its own context. If limits, scopes or the weight are functions of the context, the command " +
    "needs the policy: read from the configuration, as the workers have it.",
  examples: [
    ["--policy fetch_endpoint --where account=acme --context plan=pro", "acme has another plan"],
    [
      "--policy fetch_endpoint --partition ep1 --context max=5 --config graphile.config.ts",
      "a limit reads max",
    ],
  ],
  options: {
    ...POLICY,
    partition: { meaning: "the key of one of its partitions", default: "all" },
    where: {
      meaning: "only partitions with NAME=VALUE in their context; several: with all of them",
      default: "any",
    },
    context: {
      meaning: "NAME=VALUE that their context has from now on; may be repeated",
      required: true,
    },
  },
  dryRun: "reach",
  run: refreshContext,
  did: ({ context }, { matched, changed }) =>
    `Changed the context of ${grouped(changed)} of ${some(matched, "partition")} to ${valuesOf(context as ContextValues)}.`,
  would: ({ context }, reach) =>
    `Would change the context to ${valuesOf(context as ContextValues)}: ${reachIn(reach)}.`,
};

type TakeOptions = LimiterTarget & { cost?: number | undefined };

const takeVerb: Verb<TakeOptions, { taken: boolean; retryAt: Date | null }> = {
  summary: "take tokens for work that is no job",
  about: "Without enough tokens it takes none, says when to ask again, and ends with exit code 1.",
  examples: [["--policy fetch_endpoint --gate all && curl https://partner.example", "ask before a call"]],
  options: { ...LIMITER, ...ONE_KEY, cost: { meaning: "how many tokens", default: "1" } },
  isAudited: false,
  run: async (context, options) => {
    const row = await call<{ taken: boolean; retry_at: Date | null }>(context, "take", { ...options });
    return { taken: row.taken, retryAt: row.retry_at };
  },
  did: ({ gate, cost = 1 }, { taken, retryAt }) =>
    taken
      ? `Took ${cost} of gate ${gate}.`
      : `Not enough tokens of gate ${gate}${retryAt ? `: ask again at ${atTime(retryAt)}` : ""}.`,
  would: never,
  exit: ({ taken }) => (taken ? "done" : "failed"),
};

const syncVerb: Verb<LimiterTarget & Remaining, Synced> = {
  summary: "lower a throttle to what a partner has left",
  about:
    "It never raises a throttle. With --reset-at no more than that goes until then. If another transaction has the " +
    "throttle locked, it ends with exit code 1.",
  examples: [["--policy fetch_endpoint --gate throttle --key ep1 --remaining 3", "the partner says 3"]],
  options: {
    ...{ ...LIMITER, ...ONE_KEY },
    remaining: { meaning: "what is left of the partner's limit", required: true },
    resetAt: { meaning: "when the partner's limit is whole again" },
  },
  isAudited: false,
  did: ({ gate }, { lowered, tokens }) => {
    if (tokens === null) return `Another transaction has gate ${gate} locked: try again.`;
    const has = Math.floor(tokens * 100) / 100; // never more than it has
    return lowered
      ? `Lowered gate ${gate} to ${has}.`
      : `Gate ${gate} has ${has}, which is no more: nothing changed.`;
  },
  would: never,
  exit: ({ tokens }) => (tokens === null ? "failed" : "done"),
};

/** Of verbs without a dry run. */
function never(): never {
  throw new Error("it has no dry run");
}

export const LIMITS = {
  setLimit: setLimitVerb,
  clearLimit: clearLimitVerb,
  refreshContext: refreshContextVerb,
  take: takeVerb,
  sync: syncVerb,
};
