// Data go to stdout, words about it to stderr.
import { EXIT, type Exit } from "../command.ts";
import { visible, wrapped } from "./table.ts";

/** Prints lines as they are. */
export function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Prints a sentence, on several lines if it is long. */
export function saySentence(text: string): void {
  say(wrapped(visible(text)));
}

export function tell(text: string): void {
  process.stderr.write(`${wrapped(visible(text))}\n`);
}

export function sayJson(value: unknown): void {
  say(JSON.stringify(value));
}

/** The answer of a verb: in words, or exactly. */
export function answer<R extends { readonly matched: number; readonly stored?: boolean }>(
  { json }: { readonly json: boolean },
  result: R,
  words: string,
): Exit {
  if (json) sayJson(result);
  else saySentence(words);
  return result.matched === 0 && !result.stored ? EXIT.nothing : EXIT.done;
}

/** How a verb ends that only counted: without `--dry-run` somebody may believe that it is done. */
export function unlessYes({ "dry-run": dryRun }: { readonly "dry-run": boolean }): Exit {
  if (dryRun) return EXIT.done;
  tell("Nothing has changed. To do it, add --yes.");
  return EXIT.usage;
}

/** Whether such a verb only counts. */
export function onlyCounts(values: { readonly yes: boolean; readonly "dry-run": boolean }): boolean {
  return values["dry-run"] || !values.yes;
}

/** A list: rows as JSON, or as a table. */
export function answerList<T>(
  { json }: { readonly json: boolean },
  rows: readonly T[],
  { table, none }: { table: (rows: readonly T[]) => string; none: string },
): Exit {
  if (json) for (const row of rows) sayJson(row);
  else if (rows.length > 0) say(table(rows));
  if (rows.length > 0) return EXIT.done;
  tell(none);
  return EXIT.nothing;
}
