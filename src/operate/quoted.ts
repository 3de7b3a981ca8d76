import type { ContextValues } from "./targets.ts";

/** A text in SQL. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** A name in SQL. */
export const name = (text: string): string =>
  /^[a-z_][a-z0-9_]*$/.test(text) ? text : `"${text.replaceAll('"', '""')}"`;

/** An argument of a command, as a shell reads it. */
export const argument = (text: string): string =>
  /^[\w.,:@/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** This package's command line. */
export const COMMAND = "npx graphile-worker-dispatch-policy";

/** A call of a command, to copy. A flag with a list is written several times, and one that is true has no value. */
export function commandLine(
  command: string,
  args: readonly string[],
  flags: Readonly<Record<string, string | true | readonly string[] | undefined>>,
): string {
  const given = Object.entries(flags).flatMap(([flag, value = []]) =>
    value === true
      ? [`--${flag}`]
      : [value].flat().map((one) => `--${flag}${one.startsWith("-") ? "=" : " "}${argument(one)}`),
  );
  return [COMMAND, command, ...args, ...given].join(" ");
}

/** As the command takes them. A text that would read as a number or a boolean is quoted. */
export function pairsOf(where: ContextValues | undefined): readonly string[] | undefined {
  return (
    where &&
    Object.entries(where).map(([name, value]) => {
      const isPlain = typeof value !== "string" || !/^(-?[0-9.]+|true|false|".*")$/.test(value);
      return `${name}=${isPlain ? value : JSON.stringify(value)}`;
    })
  );
}
