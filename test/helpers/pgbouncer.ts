// PgBouncer in transaction mode before the test's server, where the program is installed.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import type { ExecutionContext } from "ava";
import pg from "pg";
import { freePort } from "../../scripts/postgres/port.ts";
import { findProgram } from "./program.ts";
import { until } from "./until.ts";

/** PGBOUNCER, else the first on PATH, or where Debian puts it; undefined: not installed. */
export function findPgBouncer(): string | undefined {
  return process.env.PGBOUNCER || findProgram("pgbouncer", ["/usr/sbin"]);
}

/**
 * The test database behind a pooler that gives each transaction any of two connections. `more` are lines of its settings,
 * which replace those. Returns its url.
 */
export async function pgBouncer(
  t: ExecutionContext,
  program: string,
  url: string,
  { more = "" }: { readonly more?: string } = {},
): Promise<string> {
  const target = new URL(url);
  const folder = mkdtempSync(path.join(os.tmpdir(), "pgbouncer-"));
  const port = await freePort();
  const users = path.join(folder, "users.txt");
  const config = path.join(folder, "pgbouncer.ini");
  writeFileSync(users, `"${target.username}" "${target.password}"\n`);
  writeFileSync(
    config,
    `[databases]
* = host=${target.hostname} port=${target.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
${more}
`,
  );
  const user = unprivileged();
  if (user) for (const file of [folder, users, config]) chownSync(file, user.uid, user.gid);
  const child = spawn(program, [config], { ...user, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (text) => {
    log += text;
  });
  const gone = once(child, "exit");
  t.teardown(async () => {
    child.kill("SIGKILL");
    await gone;
    rmSync(folder, { recursive: true, force: true });
  });
  const pooled = new URL(url);
  pooled.host = `127.0.0.1:${port}`;
  await until("PgBouncer answers", async () => {
    if (child.exitCode !== null) throw new Error(`PgBouncer ended: ${log}`);
    const client = new pg.Client({ connectionString: pooled.href });
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  });
  return pooled.href;
}

/** PgBouncer refuses to run as root. */
function unprivileged(): { uid: number; gid: number } | undefined {
  return process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined;
}
