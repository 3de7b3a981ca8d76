import type { Pool } from "pg";
import { inside } from "../../test/helpers/inside.ts";

const FUNCTIONS = `select pg_get_functiondef(oid) as text from pg_proc
  where pronamespace in ('dispatch_policy'::regnamespace, 'dispatch_policy_internal'::regnamespace, 'graphile_worker'::regnamespace)
    and prokind = 'f' and prosrc ~ '\\mpg_notify\\('`;

/**
 * Neither schema of this database notifies from now on. No option does that, and no installation should: workers would only
 * poll. It shows what notifications cost those who add.
 */
export async function stopNotifications(pool: Pool): Promise<void> {
  await pool.query("create function public.no_notify(text, text) returns void language sql as 'select'");
  for (const { text } of (await pool.query<{ text: string }>(FUNCTIONS)).rows)
    await inside(pool, text.replaceAll(/\bpg_notify\(/g, "public.no_notify("));
}
