// Options that several commands take. One means the same in each.
import os from "node:os";
import type { ContextValues, Why } from "../../operate/targets.ts";
import { LIMIT as HELP } from "../../operate/verbs/help.ts";
import { type Options, UsageError } from "../command.ts";

export const JSON_OPTION = {
  json: { kind: "flag", meaning: "print JSON: exact values, one line for each row", default: "off" },
} as const satisfies Options;

/** Of commands that only look. */
export const LOOK = {
  ...JSON_OPTION,
  watch: { kind: "seconds", meaning: "repeat it every so many seconds, 2 without a number", default: "off" },
} as const satisfies Options;

/** Of commands whose call is a row of the audit. */
export const WHY = {
  reason: { kind: "text", meaning: "why, for the audit", default: "none" },
  by: { kind: "text", meaning: "who, for the audit", default: "the user of the operating system" },
  ...JSON_OPTION,
} as const satisfies Options;

export const DRY_RUN = {
  "dry-run": { kind: "flag", meaning: "only count, and change nothing", default: "off" },
} as const satisfies Options;

/** Of commands that nothing takes back. */
export const YES = {
  ...DRY_RUN,
  yes: { kind: "flag", letter: "y", meaning: "do it; without this it only counts", default: "off" },
} as const satisfies Options;

export const ONLY_POLICY = {
  policy: { kind: "text", meaning: "only this policy", default: "all" },
} as const satisfies Options;

export const LIMIT = {
  policy: { kind: "text", ...HELP.policy },
  gate: { kind: "text", ...HELP.gate },
  key: { kind: "text", ...HELP.key },
  where: { kind: "texts", ...HELP.where },
} as const satisfies Options;

/** @throws {UsageError} unless each is `NAME=VALUE` */
export function whereOf(pairs: readonly string[] | undefined): ContextValues | undefined {
  return pairs === undefined || pairs.length === 0 ? undefined : valuesIn("where", pairs);
}

/** @throws {UsageError} unless each is `NAME=VALUE` */
export function contextOf(pairs: readonly string[]): ContextValues {
  return valuesIn("context", pairs);
}

/** `plan=free` as a value of a context. What reads as a number or a boolean in JSON is one; a text may be quoted as in JSON. */
function valuesIn(option: string, pairs: readonly string[]): ContextValues {
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, value] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
      if (name === undefined || value === undefined)
        throw new UsageError(`--${option} is "${pair}", expected NAME=VALUE, such as plan=free`);
      return [name, /^(-?[0-9.]+|true|false|".*")$/.test(value) ? exactValue(option, pair, value) : value];
    }),
  );
}

function exactValue(option: string, pair: string, value: string): string | number | boolean {
  try {
    return JSON.parse(value);
  } catch {
    throw new UsageError(`--${option} is "${pair}": its value is neither a number nor a text in quotes`);
  }
}

export const page = (most: number) =>
  ({
    limit: { kind: "number", meaning: "how many rows at most", default: `${most}` },
  }) as const satisfies Options;

export function whyOf({ reason, by }: Record<keyof Why, string | undefined>): Why {
  return { reason, by: by ?? osUser() };
}

/** Operators often share a role of the database: the name of their account says more. */
function osUser(): string | undefined {
  try {
    return os.userInfo().username;
  } catch {
    return undefined; // a container's user may have no name: then the audit has the database's
  }
}
