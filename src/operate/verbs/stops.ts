// What stops jobs, and lets them go on.
import { some } from "../../counted.ts";
import { interval } from "../../db/statements.ts";
import type { Until } from "../../policy/policy.ts";
import { actOf, aimOf } from "../call.ts";
import { keyInWords } from "../gate-words.ts";
import type {
  ByPolicy,
  Changed,
  DryRun,
  HoldTarget,
  PartitionTarget,
  Reach,
  Stored,
  Target,
  Why,
} from "../targets.ts";
import type { Either, Given, Verb } from "../verb.ts";
import { atTime, inWords, named, reachIn } from "../words.ts";
import { HOW_LONG, POLICY, TARGET } from "./help.ts";

/** The options of `pause`: every policy, a policy or one of its partitions. */
export type PauseOptions = Target &
  Why &
  DryRun & {
    /** When the pause ends; a past time is an {@link ArgumentError}. Default: it lasts until `resume`. */
    until?: Date | undefined;
  };

export interface StopVerbs {
  /**
   * Stops admission: of one partition, of a policy, or with `{ all: true }` of every policy. Jobs in flight go on. Jobs can
   * still be added; they wait.
   *
   * It lasts until `until`, or without it until {@link resume}. A later pause of the same target replaces its end. A
   * partition without jobs so far is paused when its first job is added. `{ all: true }` also pauses policies that are
   * declared later. {@link stops} lists what is paused.
   *
   * `matched` counts policies or partitions; `changed` counts the policies whose pause has another end now (a partition
   * always counts). If nothing matches yet, `matched` is 0 and `stored` is true: the pause waits for the first job, or for the
   * first policy.
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given, or if `until` is past
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.pause({ policy: "fetch_endpoint", partition: "ep1", reason: "incident 12", by: "ana" });
   */
  pause(options: ByPolicy<PauseOptions>): Promise<Stored & Reach>;

  /**
   * Lifts a pause. For a partition it also lifts a hold, and the rule that after a hold one job goes first.
   *
   * To resume a policy does not end pauses and holds of single partitions. To resume a partition does not end its policy's
   * pause. To resume all policies ends each policy's pause, and that of policies still to be declared. To resume one of
   * them leaves those paused. `changed` counts the policies or partitions that were stopped.
   *
   * @throws {ArgumentError} unless either a policy or `all: true` is given
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.resume({ policy: "fetch_endpoint", partition: "ep1" });
   */
  resume(options: ByPolicy<Target & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * Stops one partition for some time, say after a server answered 429. Unlike a pause it always ends by itself. Jobs in
   * flight go on. With `gate` and `key` it stops all partitions with this key of a gate, say those of an account.
   *
   * Give `until`, a Date, or `forMs`, milliseconds from now by the database's clock. Of two holds the one that ends later
   * counts. After its end one job goes first; the others follow once one has succeeded. {@link resume} ends it at once. For a
   * partition without jobs so far, `matched` is 0 and `stored` is true: the hold waits for its first job.
   *
   * A hold of a key is a limit of 0 ({@link limits} shows it). At its end the limits count again that the key had before, and
   * no job goes first. {@link setLimit} and {@link clearLimit} of the key end it at once.
   *
   * @throws {ArgumentError} unless exactly one of `until` and `forMs` is given, or if `until` is past
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.hold({ policy: "fetch_endpoint", partition: "ep1", forMs: 30_000, reason: "429" });
   * @example await utils.hold({ policy: "fetch_endpoint", gate: "account", key: "acme", forMs: 30_000, reason: "429" });
   */
  hold(options: ByPolicy<HoldTarget & Until & Why & DryRun>): Promise<Stored & Reach>;

  /**
   * Switches a policy off, whatever its declaration says: jobs are added past it, and ticks admit its staged jobs past its
   * gates. It stays off through restarts and deploys, until {@link enable}. `changed` is 0 if it was off.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.disable({ policy: "fetch_endpoint", reason: "partner has no limits today", by: "ana" });
   */
  disable(options: ByPolicy<{ policy: string } & Why & DryRun>): Promise<Changed & Reach>;

  /**
   * Switches a policy on, whatever its declaration says: its gates apply again. `changed` is 0 if it was on.
   *
   * @throws {UnknownPolicyError} for a policy nobody declared
   * @example await utils.enable({ policy: "fetch_endpoint" });
   */
  enable(options: ByPolicy<{ policy: string } & Why & DryRun>): Promise<Changed & Reach>;
}

const POLICY_OR_ALL = "give --policy NAME, or --all for every policy";
const TARGETS: readonly Either[] = [
  { of: ["policy", "all"], most: 1, expected: "{ policy } or { all: true }", flags: POLICY_OR_ALL },
];
const isBeyond = ({ all, partition }: Given) => all === true && partition !== undefined && POLICY_OR_ALL;

const pauseVerb: Verb<PauseOptions, Stored & Reach> = {
  summary: "stop a partition, a policy or all until resume",
  about:
    "Jobs in flight go on. Jobs can still be added; they wait. --all also stops policies that are declared later.",
  examples: [
    ['--policy fetch_endpoint --partition ep1 --reason "incident 12"', "one partition"],
    ['--all --until "30 minutes"', "everything, for half an hour"],
    ["--policy fetch_endpoint --dry-run", "count what it would stop"],
  ],
  options: {
    ...TARGET,
    until: { meaning: "when it ends: a time, or a duration from now", default: "resume" },
  },
  either: TARGETS,
  wrong: isBeyond,
  dryRun: "reach",
  undo: "resume",
  event: (options, paused) => [
    "dispatchPolicy:pause",
    { ...aimOf(options), until: options.until ?? null, ...actOf(paused, options) },
  ],
  did: (options, _, when) => `Paused ${pauseIn(options, when)}.`,
  would: (options, reach) => `Would pause ${pauseIn(options)}: ${reachIn(reach)}.`,
  note: (options, { stored }) =>
    stored &&
    ("all" in options
      ? "No policy was declared yet: the pause waits for the first."
      : "No job has had this key yet: the pause waits for the first."),
  form: {
    label: "Pause…",
    about: "Stops admission. Jobs in flight go on, and jobs can still be added; they wait.",
    target: ["policy", "partition"],
    fields: [{ option: "until", label: "For how long", hint: HOW_LONG, open: "until it is resumed" }],
    isForMany: true,
  },
};

const pauseIn = (
  { until, ...target }: PauseOptions,
  when = until ? `until ${atTime(until)}` : "until resume",
) => `${named(target as Target)}, ${when}`;

const resumeVerb: Verb<Target & Why & DryRun, Changed & Reach> = {
  summary: "end a pause or a hold",
  examples: [
    ["--policy fetch_endpoint --partition ep1", "one partition, also if it is on hold"],
    ["--policy fetch_endpoint", "the policy, but not partitions that were paused one by one"],
    ["--all", "every policy, also those to be declared"],
  ],
  options: TARGET,
  either: TARGETS,
  wrong: isBeyond,
  dryRun: "reach",
  undo: "pause",
  event: (options, resumed) => ["dispatchPolicy:resume", { ...aimOf(options), ...actOf(resumed, options) }],
  did: (target, { changed }) => `${changed > 0 ? "Resumed" : "Nothing had stopped"} ${named(target)}.`,
  would: (target, reach) => `Would resume ${named(target)}: ${reachIn(reach)}.`,
  form: {
    label: "Resume",
    about: "Ends a pause, and a hold of a partition.",
    target: ["policy", "partition"],
    isForMany: true,
  },
};

type HoldOptions = HoldTarget & Until & Why & DryRun;

const holdVerb: Verb<HoldOptions, Stored & Reach> = {
  summary: "stop a partition for some time",
  about:
    "It ends by itself. Behind the hold of a partition one job goes first, and the others follow once one has succeeded. " +
    "The hold of a key is a limit of 0, which clear-limit ends.",
  examples: [
    ['--policy fetch_endpoint --partition ep1 --for "30 seconds" --reason 429', "half a minute"],
    ['--policy fetch_endpoint --gate account --key acme --for "5 minutes"', "all partitions of acme"],
  ],
  options: {
    ...POLICY,
    partition: { meaning: "the key of the partition; or instead of it:" },
    gate: { meaning: "the name of a gate, of which a key is held" },
    key: { meaning: "the scope key, such as an account" },
    forMs: { meaning: 'for how long, such as "30 seconds"; or instead of it:' },
    until: { meaning: "when it ends" },
  },
  with: ({ gate }) =>
    gate === undefined ? { needs: "partition", not: ["gate", "key"] } : { needs: "gate", not: ["partition"] },
  either: [
    {
      of: ["partition", "gate"],
      most: 1,
      expected: "{ partition } or { gate, key }",
      flags: "give --partition KEY, or --gate NAME with --key KEY",
    },
    {
      of: ["until", "forMs"],
      most: 1,
      expected: "{ until: Date } or { forMs: number }",
      flags: "give --for DURATION or --until TIME",
    },
  ],
  wrong: ({ gate, key }) => key !== undefined && gate === undefined && "--key needs --gate NAME",
  dryRun: "reach",
  undo: "resume",
  // a length of time counts by the database's clock
  args: ({ forMs, until, policy, partition, gate, key, reason, by }) => ({
    ...{ policy, partition, gate, key, reason, by },
    ...(until ? { until } : { for: interval(forMs ?? 0) }),
  }),
  event: (options, held) => {
    const { policy, partition = null, gate = null, key = null, until = null, forMs = null } = options;
    return ["dispatchPolicy:hold", { policy, partition, gate, key, until, forMs, ...actOf(held, options) }];
  },
  did: (options) => `Put ${holdIn(options)}.`,
  would: (options, reach) => `Would put ${holdIn(options)}: ${reachIn(reach)}.`,
  note: (_, { stored }) => stored && "No job has had this key yet: the hold waits for the first.",
  form: {
    label: "Hold…",
    about: "Stops the partition for a while. Then one job goes first, and the others once it has succeeded.",
    target: ["policy", "partition"],
    fields: [{ option: "forMs", label: "For how long", isRequired: true, hint: HOW_LONG }],
    needs: "partition",
    count: ({ policy, partition }) => ["hold", { policy, partition, forMs: 1000 }],
    isForMany: true,
  },
};

function holdIn({ gate, key, until, forMs, ...target }: HoldOptions): string {
  const what =
    gate === undefined
      ? named(target as PartitionTarget)
      : `gate ${gate}${key === undefined ? "" : ` of ${keyInWords(key)}`}`;
  return `${what} on hold ${until ? `until ${atTime(until)}` : `for ${inWords(forMs ?? 0)}`}`;
}

type SwitchOptions = { policy: string } & Why & DryRun;

const switching = (enabled: boolean) =>
  ({
    sql: "switch_policy",
    args: ({ policy, reason, by }) => ({ policy, enabled, reason, by }),
    event: (options, switched) => [
      "dispatchPolicy:switch",
      { policy: options.policy, enabled, ...actOf(switched, options) },
    ],
    options: POLICY,
    dryRun: "reach",
  }) satisfies Partial<Verb<SwitchOptions, Changed & Reach>>;

const disableVerb: Verb<SwitchOptions, Changed & Reach> = {
  ...switching(false),
  summary: "switch a policy off: its jobs go past the gates",
  about: "It stays off through restarts and deploys, until enable. To stop jobs instead, use pause.",
  examples: [
    ["--policy fetch_endpoint", "count the jobs that would go past the gates"],
    ['--policy fetch_endpoint --yes --reason "no limits today"', "switch it off"],
  ],
  isFinal: true, // nothing takes back what ticks admit then
  undo: "enable",
  did: ({ policy }, { changed }) =>
    changed > 0 ? `Policy ${policy} is off: no gate applies.` : `Policy ${policy} was off already.`,
  would: (_, { staged = 0 }) => `Ticks would admit ${some(staged, "staged job")} past the gates.`,
};

const enableVerb: Verb<SwitchOptions, Changed & Reach> = {
  ...switching(true),
  summary: "switch a policy on again",
  examples: [["--policy fetch_endpoint", "its gates apply again"]],
  undo: "disable",
  did: ({ policy }, { changed }) => `Policy ${policy} ${changed > 0 ? "is on" : "was on already"}.`,
  would: ({ policy }, reach) => `Would switch policy ${policy} on: ${reachIn(reach)}.`,
};

export const STOPS = {
  pause: pauseVerb,
  resume: resumeVerb,
  hold: holdVerb,
  disable: disableVerb,
  enable: enableVerb,
};
