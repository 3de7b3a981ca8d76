/** Error codes that functions in sql/functions raise. docs/errors.md says what each means. */
export const UNKNOWN_POLICY = "DPPOL";
export const BACKLOG_FULL = "DPFUL";
export const BAD_KEY = "DPKEY";
export const IN_USE = "DPUSE";
/** The server is an old primary: another one has had a later timeline. */
export const OLD_SERVER = "DPOLD";
/** The codes of a wrong argument. */
export const BAD_ARGUMENT: ReadonlySet<string | undefined> = new Set(["DPARG", BAD_KEY]);
/** PostgreSQL's own. */
export const LOCK_NOT_AVAILABLE = "55P03";
export const QUERY_CANCELED = "57014";

/** What a function of sql/functions says in its error, without the name of this package before it. */
export function saidBySql(message: string): string {
  return message.replace(/^dispatch_policy: /, "");
}

/** Whether a statement named a policy that the database does not have: it may have been removed meanwhile. */
export function isUnknownPolicy(error: unknown): boolean {
  return (error as { code?: string } | null)?.code === UNKNOWN_POLICY;
}
