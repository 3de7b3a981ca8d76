// The anatomy of a command. Each stands in a file of its own; `commands.ts` lists them.

/** The exit codes of all commands. */
export const EXIT = {
  done: 0,
  /** It failed, or what was looked at is not well. */
  failed: 1,
  /** The command line is wrong, or `--yes` is missing. */
  usage: 2,
  /** Nothing matches. */
  nothing: 3,
} as const;

export type Exit = (typeof EXIT)[keyof typeof EXIT];

/** What a kind of option is read as. */
interface Kinds {
  flag: boolean;
  text: string;
  /** May be given several times. */
  texts: readonly string[];
  number: number;
  /** A time, or a duration from now. */
  time: Date;
  /** A time, or a duration before now. */
  past: Date;
  /** A duration, in milliseconds. */
  duration: number;
  /** Seconds; without a value 2. */
  seconds: number;
}

export interface Option {
  readonly kind: keyof Kinds;
  readonly meaning: string;
  /** In words, for the help. A required option has none. */
  readonly default?: string;
  readonly required?: true;
  readonly letter?: string;
}

export type Options = Readonly<Record<string, Option>>;

/** The arguments without a name. */
export interface Argument {
  readonly name: string;
  readonly kind: "text" | "texts";
  readonly meaning: string;
  readonly required?: true;
}

type Value<O extends Option> = O extends { required: true } | { kind: "flag" }
  ? Kinds[O["kind"]]
  : Kinds[O["kind"]] | undefined;

/** The options of every command: where it works. */
export const PLACE = {
  connection: {
    kind: "text",
    letter: "c",
    meaning: "PostgreSQL connection, as an address",
    default: "DATABASE_URL, else that of the configuration",
  },
  schema: {
    kind: "text",
    meaning: "Graphile Worker's schema",
    default: "GRAPHILE_WORKER_SCHEMA, else that of the configuration, else graphile_worker",
  },
  "policy-schema": {
    kind: "text",
    meaning: "this package's schema",
    default: "DISPATCH_POLICY_SCHEMA, else that of the configuration, else dispatch_policy",
  },
  config: {
    kind: "text",
    letter: "C",
    meaning: "the configuration, a file with a preset",
    default: "graphile.config.* of this folder, if nothing else names a connection",
  },
} as const satisfies Options;

type Read<O extends Options> = { readonly [Name in keyof O]: Value<O[Name]> };

export type PlaceValues = Read<typeof PLACE>;

/** What was given on the command line. Arguments without a name are in `rest`. */
export type Values<O extends Options> = Read<O> & PlaceValues & { readonly rest: readonly string[] };

export interface Definition<O extends Options> {
  readonly options: O;
  readonly argument?: Argument;
  /** What follows the command's name, and what that does. */
  readonly examples: readonly (readonly [line: string, meaning: string])[];
  /** What else to know, at the end of its help. */
  readonly about?: string;
  run(values: Values<O>): Promise<Exit>;
}

export type Command = Omit<Definition<Options>, "run"> & { run(values: never): Promise<Exit> };

/** Types the values that `run` gets by the options. */
export function defineCommand<const O extends Options>(definition: Definition<O>): Command {
  return definition;
}

/** A command line that cannot be meant. It ends with exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** The name of the command, if it is known. */
  readonly command: string | undefined;

  constructor(message: string, command?: string) {
    super(message);
    this.command = command;
  }
}
