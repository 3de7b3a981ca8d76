// What the help says of options that several verbs take.
import type { Help, OptionName } from "../verb.ts";

type Helps = Readonly<Partial<Record<OptionName, Help>>>;

export const POLICY = { policy: { meaning: "the policy", required: true } } as const satisfies Helps;

export const TARGET = {
  policy: { meaning: "the policy" },
  partition: { meaning: "the key of one of its partitions", default: "the whole policy" },
  all: { meaning: "every policy, instead of one" },
} as const satisfies Helps;

export const LIMITER = {
  ...POLICY,
  gate: { meaning: "the gate, by name", required: true },
  key: { meaning: "one scope key of the gate", default: "every key" },
} as const satisfies Helps;

export const LIMIT = {
  ...LIMITER,
  where: {
    meaning: "partitions with NAME=VALUE in their context, also those to come; several: with all of them",
    default: "any",
  },
} as const satisfies Helps;

/** The key of a limiter, for verbs that act on one. */
export const ONE_KEY = {
  key: { meaning: "the scope key; a gate over the policy takes none" },
} as const satisfies Helps;

/** The hint of a form's field for a length of time. */
export const HOW_LONG = 'a duration, such as "30 minutes"';
