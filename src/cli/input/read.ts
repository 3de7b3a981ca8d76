import type { Option, Options } from "../command.ts";
import { UsageError } from "../command.ts";
import { readDuration, readTime } from "./times.ts";

/** What yargs read: of an option that was given twice, an array. */
type Given = string | boolean | readonly (string | boolean)[] | undefined;

/** How an option of each kind is read from its text. */
const READERS: Readonly<
  Record<Exclude<Option["kind"], "flag" | "texts">, (name: string, text: string) => unknown>
> = {
  text: (_, text) => text,
  number: readNumber,
  time: (name, text) => readTime(name, text, 1),
  past: (name, text) => readTime(name, text, -1),
  duration: readDuration,
  seconds: (name, text) => (text === "" ? 2 : readSeconds(name, text)),
};

/** @throws {UsageError} naming the option whose value is wrong */
export function readValues(
  options: Options,
  given: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(options).map(([name, { kind }]) => [name, readValue(name, kind, given[name] as Given)]),
  );
}

function readValue(name: string, kind: Option["kind"], given: Given): unknown {
  if (kind === "flag") return [given].flat().at(-1) === true;
  if (given === undefined) return undefined;
  const texts = [given].flat().map(String);
  if (kind === "texts") return texts;
  const [text = "", ...others] = texts;
  if (others.length > 0) throw new UsageError(`--${name} is given ${texts.length} times, expected once`);
  return READERS[kind](name, text);
}

function readNumber(name: string, text: string): number {
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number))
    throw new UsageError(`--${name} must be a number, got ${JSON.stringify(text)}`);
  return number;
}

function readSeconds(name: string, text: string): number {
  const seconds = readNumber(name, text);
  if (seconds < 0.1 || seconds > 86_400)
    throw new UsageError(`--${name} must be a number of seconds, 0.1 to 86400, got ${text}`);
  return seconds;
}
