import { type Duration, isDuration } from "../../duration.ts";
import { ArgumentError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import type { Diff } from "../../operate/diff.ts";
import type { Changed, Reach, Stored } from "../../operate/targets.ts";
import { HOW_LONG } from "../../operate/verbs/help.ts";
import type { VerbName } from "../../operate/verbs.ts";
import type { PolicyDefinition } from "../../policy/definition.ts";
import type { Change } from "./limit-changes.ts";

/** What a form gives, by its fields: texts, of which only keys may be empty. */
export type Values = Readonly<Record<string, string | undefined>>;

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly isRequired?: true;
  /** It takes a key, which may be the empty text: see {@link keyIn}. */
  readonly isKey?: true;
  /** It narrows what the page has counted. */
  readonly isFilter?: true;
  readonly hint?: string;
  /** The gates that have it, of a field of limits. Without it: all. */
  readonly isFor?: (gate: Gate) => boolean;
  /** What is given most often, beside a field for anything else. An empty value says what it means to give nothing. */
  readonly chips?: readonly Choice[];
  /** What there is to choose from. Without it the field takes any text. */
  readonly choices?: (known: Known) => readonly Choice[];
}

export type Gate = PolicyDefinition["gates"][number];

export interface Choice {
  readonly value: string;
  readonly says: string;
}

/** What a page has read of the policy that its values name. */
export interface Known {
  /** The definition in force. Undefined: the page needs none, or there is none. */
  readonly definition?: PolicyDefinition | undefined;
}

/** A verb on a page. The page counts first, if it can, and asks for a reason. */
export interface Action {
  /** Its name for people. */
  readonly label: string;
  /** Says what it does. */
  readonly about: string;
  /** What it acts on, of which the page knows the values. */
  readonly target: readonly string[];
  readonly fields: readonly Field[];
  /** Reads what the page says of the policy. It is asked once, for all that follow. */
  readonly know?: (looking: OperateContext, values: Values) => Promise<Known>;
  /** Undefined: the values do not say yet what it acts on. */
  readonly count?: (acting: OperateContext, values: Values, known: Known) => Promise<Counted | undefined>;
  /** What the form begins with, if these values leave that open. */
  readonly filled?: (looking: OperateContext, values: Values, known: Known) => Promise<Values>;
  /** What the numbers are, and what they would be. Undefined: as for `count`. */
  readonly changes?: (
    looking: OperateContext,
    values: Values,
    known: Known,
  ) => Promise<readonly Change[] | undefined>;
  /** Whether the load is recorded, so that the page can replay it first. */
  readonly isRecorded?: (known: Known) => boolean;
  /** Replays the recorded load as if it had been done. */
  readonly replay?: (acting: OperateContext, values: Values) => Promise<Diff>;
  readonly run: (acting: OperateContext, values: Values & Why) => Promise<Result>;
  /** What was done, in words. */
  readonly did: (values: Values, result: Result) => string;
  /** The arguments of the SQL function, beside reason and author. A value is an expression. */
  readonly sql: (values: Values) => Readonly<Record<string, string | undefined>>;
  /** The command's flags, where they differ from target and fields. */
  readonly flags?: (values: Values) => Flags;
  /** Without `--yes` the command only counts. */
  readonly needsYes?: true;
  /** The verb that undoes it, on the same target. */
  readonly inverse?: ActionName;
}

/** Flags of a command. One with a list is written several times. */
export type Flags = Readonly<Record<string, string | readonly string[] | undefined>>;

/** What a verb has done. */
export type Result = Changed & Partial<Stored>;

/** What a page says before it asks. */
export type Counted = Result & Reach;

export interface Why {
  readonly reason: string;
  readonly by: string;
}

type Kebab<S extends string> = S extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `-${Lowercase<First>}`}${Kebab<Rest>}`
  : S;

/** A verb, as the command line names it. */
export type ActionName = Kebab<VerbName>;

/** The name of an action without the sign that its page asks for more. */
export const titleOf = ({ label }: Pick<Action, "label">): string => label.replace("…", "");

/** A flag without a value has this in place of one. */
export const FLAG = "";

export function need(name: string, value: string | undefined): string {
  if (value === undefined)
    throw new ArgumentError(
      `${name} is missing. Fill it in, or come by a link on the page of a policy, a partition or a job, which names it`,
    );
  return value;
}

/** The key that somebody wrote in a field. One that is empty was not filled in, so two quotes stand for the empty key. */
export function keyIn(given: string | null): string | undefined {
  return given === EMPTY_KEY ? "" : given || undefined;
}

/** The same key as a field has it. */
export function keyAsWritten(key: string | undefined): string | undefined {
  return key === "" ? EMPTY_KEY : key;
}

const EMPTY_KEY = '""';

export const IF_EMPTY = `${EMPTY_KEY}: the empty key`;

export function durationIn(name: string, length: string): Duration {
  if (!isDuration(length))
    throw new ArgumentError(`${name} must be ${HOW_LONG}, got ${JSON.stringify(length)}`);
  return length;
}

export function numberIn(name: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!Number.isFinite(number))
    throw new ArgumentError(`${name} must be a number, got ${JSON.stringify(value)}`);
  return number;
}
