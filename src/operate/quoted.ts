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
