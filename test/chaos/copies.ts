// The jobs that were copied or requeued instead of run, logged by the transactions that did so. A process that is killed, or cut off
// from the server, cannot tell of one that it has just staged again. And the jobs that were adopted, which keep Graphile Worker's ids: one
// of them may have been unstaged, and have run before.
import type pg from "pg";
import type { Copied, Suspect } from "./judge.ts";

/** Of each adopted job its id and when it was added to Graphile Worker. */
export async function adoptions(pool: pg.Pool): Promise<{ job: string; createdAt: number }[]> {
  const { rows } = await pool.query(
    `select job, (extract(epoch from created_at) * 1000)::float8 as "createdAt" from public.chaos_adoptions`,
  );
  return rows;
}

/** `lives`: the processes, by the number each gives as its connections' name. */
export async function copies(pool: pg.Pool, lives: readonly Suspect[]): Promise<Copied[]> {
  const { rows } = await pool.query<Omit<Copied, "by"> & { life: number }>(
    `select job, staged, copy, life, (extract(epoch from at) * 1000)::float8 as at,
       (extract(epoch from created_at) * 1000)::float8 as "createdAt" from public.chaos_copies`,
  );
  return rows.map(({ life, ...one }) => ({ ...one, by: lives[life] }));
}
