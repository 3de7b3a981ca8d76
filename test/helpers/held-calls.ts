// Calls of a function of the schema that stand still in the middle, until a test lets them go on.
import type pg from "pg";
import { until } from "./until.ts";

export interface HeldCalls {
  /** Resolves once one stands still. */
  isHeld(): Promise<unknown>;
  /** Lets it go on, and all that come later. */
  goOn(): Promise<unknown>;
}

/** Holds calls of this function right after they have changed a table: `change` is `insert on <table>`, for example. */
export async function holdCalls(pool: pg.Pool, name: string, change: string): Promise<HeldCalls> {
  await pool.query(`create table public.held_calls_go_on ();
    create function public.waits() returns trigger language plpgsql as $$ begin
      while current_query() like '%${name}(%' and not exists (select from public.held_calls_go_on) loop
        perform pg_sleep(0.01);
      end loop;
      return null;
    end $$;
    create trigger waits after ${change} for each statement execute function public.waits()`);
  return {
    isHeld: () =>
      until(`${name} stands still`, async () => {
        const { rows } = await pool.query(
          "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'",
        );
        return rows.length > 0;
      }),
    goOn: () => pool.query("insert into public.held_calls_go_on default values"),
  };
}
