// The worker pools that counted as dead, logged by the transactions that buried them. Where all connections of the server
// are taken for long, a pool of a process that lives is silent for longer than workerStaleAfter.
import type pg from "pg";
import type { Suspect } from "./judge.ts";

/** Tells each process of these when its pool was buried. */
export async function tellBurials(
  pool: pg.Pool,
  lives: readonly (Pick<Suspect, "buried"> & { readonly child: { readonly pid?: number | undefined } })[],
): Promise<void> {
  const { rows } = await pool.query<{ pid: number; at: number }>(
    "select pid, (extract(epoch from at) * 1000)::float8 as at from public.chaos_burials",
  );
  for (const { pid, at } of rows) lives.find(({ child }) => child.pid === pid)?.buried.push(at);
}
