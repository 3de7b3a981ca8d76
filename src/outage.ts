/** Classes of PostgreSQL's error codes that go by: of connections, conflicts, resources, locks, shutdowns. */
const OUTAGES = new Set(["08", "25", "40", "53", "55", "57", "58"]);

/** Whether what failed may go through when it is tried again. Without a code of PostgreSQL's it was the connection. */
export function isOutage(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code !== "string" || !/^[0-9A-Z]{5}$/.test(code) || OUTAGES.has(code.slice(0, 2));
}
