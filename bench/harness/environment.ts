import os from "node:os";
import pg from "pg";
import { VERSIONS } from "./versions.ts";

const SHOWN = [
  "server_version",
  "fsync",
  "synchronous_commit",
  "full_page_writes",
  "shared_buffers",
] as const;

export type Environment = Awaited<ReturnType<typeof readEnvironment>>;

/** What the figures depend on. */
export async function readEnvironment() {
  const connectionString = process.env.DATABASE_URL;
  if (!connectionString) throw new Error("DATABASE_URL is not set: npm run bench sets it");
  const client = new pg.Client({ connectionString });
  await client.connect();
  const postgres: Record<string, string> = {};
  for (const name of SHOWN) {
    const { rows } = await client.query<{ value: string }>("select current_setting($1) as value", [name]);
    postgres[name] = rows[0]?.value ?? "";
  }
  await client.end();
  return {
    postgres,
    node: process.versions.node,
    ...VERSIONS,
    cpu: { model: os.cpus()[0]?.model ?? "unknown", cores: os.availableParallelism() },
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    /** Of one minute, before the run: what else the machine was doing. */
    load: os.loadavg()[0],
    startedAt: new Date().toISOString(),
  };
}
