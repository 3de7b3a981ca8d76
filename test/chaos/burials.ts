// The worker pools that counted as dead, logged by the transactions that buried them. Where all connections of the server
// are taken for long, a pool of a process that lives is silent for longer than workerStaleAfter.
import type pg from "pg";
import type { Suspect } from "./judge.ts";

/** Only pools that had been silent for as long as they said. A pool that is buried sooner explains nothing. */
export async function logBurials(pool: pg.Pool): Promise<void> {
  await pool.query(`
    create table public.chaos_burials (pid int, at timestamptz default clock_timestamp());
    create function chaos_log_burial() returns trigger language plpgsql as $$
    begin
      insert into public.chaos_burials (pid) select new.pid;
      return null;
    end $$;
    create trigger chaos_log_burial after update of buried_at on dispatch_policy._private_workers
      for each row when (old.buried_at is null and new.buried_at is not null
        and old.heartbeat_at + old.stale_after <= new.buried_at)
      execute function chaos_log_burial();`);
}

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
