// The worker pools that counted as dead, logged by the transactions that buried them. Where all connections of the server
// are taken for long, a pool of a process that lives is silent for longer than workerStaleAfter.
import type pg from "pg";
import type { Suspect } from "./judge.ts";

/** A process that may have been buried. */
interface Life extends Pick<Suspect, "buried"> {
  readonly child: { readonly pid?: number | undefined };
  readonly bornAt: number;
}

/** Tells each process of these when its pool was buried. In a long run ids of processes come again. */
export async function tellBurials(pool: pg.Pool, lives: readonly Life[]): Promise<void> {
  const { rows } = await pool.query<{ pid: number; started: number; at: number }>(
    `select pid, (extract(epoch from started_at) * 1000)::float8 as started, (extract(epoch from at) * 1000)::float8 as at
    from public.chaos_burials`,
  );
  for (const { pid, started, at } of rows)
    lives.findLast(({ child, bornAt }) => child.pid === pid && bornAt <= started)?.buried.push(at);
}
