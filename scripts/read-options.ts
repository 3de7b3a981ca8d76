/** The options of a program that visitors start: a mistake is a sentence and exit code 2, and no stack trace. */
import { type ParseArgsConfig, parseArgs } from "node:util";

type Options = NonNullable<ParseArgsConfig["options"]>;

/** Ends the process after `--help`, which prints `usage`, and after a mistake. */
export function readOptions<const T extends Options>(options: T, usage: string) {
  // npm takes the first "--" away, and visitors who know that give one to the scripts as well
  const args = process.argv.slice(process.argv[2] === "--" ? 3 : 2);
  if (args.includes("--help")) {
    console.log(usage);
    process.exit(0);
  }
  try {
    return parseArgs({ args, options }).values;
  } catch (error) {
    return endWith(`${(error as Error).message.split(". ")[0]}.\n${usage}`);
  }
}

/** Ends the process if the text is anything else. */
export function readWhole(name: string, text: string, least: number, most: number): number {
  const number = Number(text);
  if (/^\d+$/.test(text) && number >= least && number <= most) return number;
  return endWith(`--${name} ${JSON.stringify(text)}: expected a whole number from ${least} to ${most}.`);
}

export const readPort = (text: string): number => readWhole("port", text, 0, 65_535);

function endWith(message: string): never {
  console.error(message);
  process.exit(2);
}
