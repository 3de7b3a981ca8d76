import { createRequire } from "node:module";
import type { Argv, default as Yargs } from "yargs";
import { suggestion, suggestions } from "../closest.ts";
import { type Command, type Exit, type Option, type Options, PLACE, UsageError } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { readValues } from "./input/read.ts";
import { COLUMNS } from "./output/table.ts";

export const NAME = "graphile-worker-dispatch-policy";

const require = createRequire(import.meta.url);
/** Its module for `import` breaks lines of a help within words; the one for `require` does not. */
const yargs: typeof Yargs = require("yargs/yargs");

/** What a command line asks for. */
export interface Call {
  readonly name: string;
  run(): Promise<Exit>;
}

/**
 * Reads a command line. Null: it was answered, by a help, the version or completions.
 *
 * @throws {UsageError} if it is wrong
 */
export async function readCall(args: readonly string[]): Promise<Call | null> {
  const [first = "-"] = args;
  const called = COMMANDS.find(({ name }) => (first.startsWith("-") ? args.includes(name) : name === first));
  const loaded = (await called?.load())?.command;
  const parser = emptyParser(args).fail((message, error) => {
    const plain =
      error instanceof UsageError ? error.message : plainly(message ?? error.message, args, loaded);
    throw new UsageError(plain, called?.name);
  });
  let call: Call | null = null;
  for (const { name, summary } of COMMANDS) {
    if (name !== called?.name || !loaded)
      parser.command(name, summary); // nobody calls it, so its options are not needed
    else
      addCommand(parser, { name, summary, command: loaded }, (found) => {
        call = found;
      });
  }
  await parser.parseAsync();
  return call;
}

function emptyParser(args: readonly string[]): Argv {
  return (
    yargs([...args])
      // helps would begin each line with the name; a shell needs it to complete
      .scriptName(args[0] === "completion" ? NAME : "")
      .usage(`${NAME} <command> [options]\n\nOperates the dispatch policies of a database.`)
      .parserConfiguration({
        "boolean-negation": false,
        "camel-case-expansion": false,
        "dot-notation": false,
        "greedy-arrays": false,
        "parse-numbers": false,
        "parse-positional-numbers": false,
      })
      .locale("en") // not the one of the machine: the other words are English
      .wrap(COLUMNS)
      .exitProcess(false)
      .strict()
      .demandCommand(1, "no command: name one")
      .completion("completion", "print a script that completes commands in a shell")
      .version(require(`${NAME}/package.json`).version)
      .alias("help", "h")
      .epilogue(
        `The options of a command: ${NAME} <command> --help\n` +
          "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 nothing matched.",
      )
  );
}

function addCommand(
  parser: Argv,
  { name, summary, command }: { name: string; summary: string; command: Command },
  found: (call: Call) => void,
): void {
  const { argument, examples, about } = command;
  const options: Options = { ...command.options, ...PLACE };
  const usage = argument ? `${name} ${inUsage(argument)}` : name;
  parser.command(
    usage,
    summary,
    (own) => {
      own
        .usage(`${NAME} ${usage} [options]\n\n${sentence(summary)} ${about ?? ""}`)
        .epilogue("")
        .version(false);
      if (argument)
        own.positional(argument.name, {
          type: "string",
          describe: argument.meaning,
          ...(argument.kind === "texts" && { defaultDescription: "none" }),
        });
      own.group(Object.keys(command.options), "Options:").group(Object.keys(PLACE), "Where:");
      for (const [option, its] of Object.entries(options)) own.option(option, asYargs(its));
      for (const [line, meaning] of examples) own.example(`${name} ${line}`.trim(), meaning);
      return own;
    },
    (argv) => {
      const rest = argument ? [argv[argument.name] ?? []].flat().map(String) : [];
      const run = async () => command.run({ ...readValues(options, argv), rest } as never);
      found({ name, run });
    },
  );
}

function inUsage({ name, kind, required }: NonNullable<Command["argument"]>): string {
  const text = kind === "texts" ? `${name}..` : name;
  return required ? `<${text}>` : `[${text}]`;
}

function asYargs({ kind, meaning, default: fallback, required, letter }: Option) {
  return {
    type: kind === "flag" ? ("boolean" as const) : ("string" as const),
    array: kind === "texts",
    requiresArg: kind !== "flag" && kind !== "seconds",
    describe: meaning,
    ...(fallback !== undefined && !IS_NONE.has(fallback) && { defaultDescription: fallback }),
    ...(required && { demandOption: true }),
    ...(letter !== undefined && { alias: letter }),
  };
}

/** Defaults that go without saying. */
const IS_NONE: ReadonlySet<string> = new Set(["none", "off"]);

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** What yargs refuses, in the words of this package's errors. An unknown word comes with the nearest right one. */
function plainly(message: string, args: readonly string[], called: Command | undefined): string {
  const [, kind, names = ""] =
    /^(Unknown|Missing required|Not enough) arguments?(?: following)?: (.*)$/.exec(message) ?? [];
  const [unknown = ""] = names.split(", ");
  if (kind === "Missing required") return `missing --${names.replaceAll(", ", ", --")}`;
  if (kind === "Not enough") return `--${names} needs a value`;
  if (kind === undefined) return message.replace(/^Not enough non-option arguments:.*/, "missing argument");
  const [first = "-"] = args;
  if (!called && !first.startsWith("-")) {
    const commands = COMMANDS.map(({ name }) => name);
    return `unknown command "${first}"${suggestions(first, commands, "commands")}`;
  }
  if (args.some((arg) => arg.startsWith(`-${unknown}`) || arg.startsWith(`--${unknown}`)))
    return `unknown option "${unknown}"${suggestion(unknown, Object.keys({ ...called?.options, ...PLACE }), "options")}`;
  return `unexpected "${unknown}"`;
}
