// A server from programs on this machine, in a folder of its own that goes away with it.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  accessSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statfsSync,
} from "node:fs";
import os from "node:os";
import path from "node:path";
import { freePort } from "./port.ts";
import { hasLibrary, type ServerOptions, serverArguments } from "./settings.ts";
import type { Postgres } from "./start.ts";

interface User {
  readonly uid: number;
  readonly gid: number;
}

/** What every program here runs with: an unprivileged user, and nothing of the caller's environment. */
interface Surroundings {
  readonly folder: string;
  readonly data: string;
  readonly user: User | undefined;
  readonly env: NodeJS.ProcessEnv;
}

export async function startServer(bin: string, via: string, options: ServerOptions): Promise<Postgres> {
  const surroundings = prepare(options);
  try {
    const programs = reachable(bin, surroundings);
    if (options.fill) await fill(options.fill, surroundings);
    else initialise(programs, surroundings);
    const port = await freePort();
    const settings = serverArguments(options, (library) => hasLibrary(programs, library));
    const guard = spawnGuarded(programs, port, settings, surroundings);
    const stop = () => stopGuard(guard);
    await ready(guard, "FATAL").catch(async (error) => {
      await stop();
      throw error;
    });
    letGo(guard);
    const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
    const { data } = surroundings;
    return { url, via: `${via} (${bin})`, restart: () => restartGuarded(guard), data, stop };
  } catch (error) {
    for (const folder of [surroundings.folder, surroundings.data])
      rmSync(folder, { recursive: true, force: true });
    throw new Error(`${via} (${bin}) did not start: ${(error as Error).message}`, { cause: error });
  }
}

function prepare({ durable = false, env: more }: ServerOptions): Surroundings {
  const folder = mkdtempSync(path.join(os.tmpdir(), "pg-"));
  const data = mkdtempSync(path.join(!durable && hasRoomInMemory() ? IN_MEMORY : folder, "pg-data-"));
  const user = unprivilegedUser();
  if (user) for (const own of [folder, data]) chownSync(own, user.uid, user.gid);
  const env = { PATH: process.env.PATH ?? "", HOME: folder, LC_ALL: "C", TZ: "UTC", ...more };
  return { folder, data, user, env };
}

const IN_MEMORY = "/dev/shm";
/** Several times what the tests were seen to need. */
const ROOM_BYTES = 4 * 2 ** 30;

/** A file system in memory makes a test's database in 45 ms, where a disk took 400. */
function hasRoomInMemory(): boolean {
  try {
    accessSync(IN_MEMORY, constants.W_OK);
    const { bavail, bsize } = statfsSync(IN_MEMORY);
    return Math.min(bavail * bsize, process.availableMemory()) > ROOM_BYTES;
  } catch {
    return false; // there is none
  }
}

/** PostgreSQL refuses to run as root: whom to become instead. */
function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const passwd = readFileSync("/etc/passwd", "utf8");
  for (const name of ["postgres", "nobody"]) {
    const match = passwd.match(new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, "m"));
    if (match) return { uid: Number(match[1]), gid: Number(match[2]) };
  }
  return { uid: 65534, gid: 65534 };
}

/** The programs, copied when they sit where the unprivileged user may not enter, such as root's home. */
function reachable(bin: string, { folder, user, env }: Surroundings): string {
  const program = path.join(bin, "postgres");
  if (!existsSync(program)) throw new Error("no program of the name postgres there");
  const trial = spawnSync(program, ["--version"], { ...user, env, cwd: folder });
  if (!trial.error || !user) return bin;
  const copy = path.join(folder, "native");
  cpSync(path.dirname(bin), copy, { recursive: true, verbatimSymlinks: true });
  spawnSync("chown", ["-R", `${user.uid}:${user.gid}`, copy]);
  return path.join(copy, "bin");
}

function initialise(bin: string, { folder, data, user, env }: Surroundings): void {
  const whose = ["-D", data, "-U", "postgres", "-A", "trust"];
  const how = ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"];
  const spawned = spawnSync(path.join(bin, "initdb"), [...whose, ...how], {
    ...user,
    env,
    cwd: folder,
    encoding: "utf8",
  });
  if (spawned.status !== 0) throw new Error(`initdb: ${spawned.error?.message ?? spawned.stderr}`);
}

async function fill(by: (data: string) => Promise<void>, { data, user }: Surroundings): Promise<void> {
  await by(data);
  if (user) spawnSync("chown", ["-R", `${user.uid}:${user.gid}`, data]);
}

/**
 * The shell outlives us: however we end, even by `kill -9`, its standard input closes; then it stops the server and
 * removes its folders. Each line before that has it stop the server and start another.
 */
const GUARD = `
  stop() { kill -QUIT $server 2>/dev/null; kill -CONT $server 2>/dev/null; wait $server; }
  "$@" & server=$!
  while read -r _; do stop; "$@" & server=$!; done
  stop; rm -rf "$FOLDER" "$DATA"`;

function spawnGuarded(
  bin: string,
  port: number,
  settings: string[],
  { folder, data, user, env }: Surroundings,
) {
  const where = ["-D", data, "-p", String(port), "-k", folder];
  const server = [path.join(bin, "postgres"), ...where, "-c", "listen_addresses=127.0.0.1", ...settings];
  return spawn("/bin/sh", ["-c", GUARD, "postgres-guard", ...server], {
    ...user,
    env: { ...env, FOLDER: folder, DATA: data },
    cwd: "/",
    stdio: ["pipe", "ignore", "pipe"],
    detached: true,
  });
}

/** Resolves when the server says so; fails when it says `trouble`. */
function ready(guard: ReturnType<typeof spawnGuarded>, trouble: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let log = "";
  const read = (text: string) => {
    log = (log + text).slice(-8192);
    if (/ready to accept (read-only )?connections/.test(log)) resolve();
    if (log.includes(trouble)) reject(new Error(log));
  };
  const exited = (code: number | null) => reject(new Error(`exited with ${code}: ${log}`));
  guard.stderr.setEncoding("utf8").on("data", read);
  guard.once("error", reject).once("exit", exited);
  return promise.finally(() => {
    guard.stderr.off("data", read).resume();
    guard.off("error", reject).off("exit", exited);
  });
}

async function restartGuarded(guard: ReturnType<typeof spawnGuarded>): Promise<void> {
  const up = ready(guard, "PANIC"); // clients that come too early are told FATAL
  guard.stdin.write("restart\n");
  await up;
}

/** A running server must not keep our process alive. */
function letGo(guard: ReturnType<typeof spawnGuarded>): void {
  guard.unref();
  for (const stream of [guard.stdin, guard.stderr]) (stream as unknown as { unref?(): void }).unref?.();
}

async function stopGuard(guard: ChildProcess): Promise<void> {
  if (guard.exitCode !== null || guard.signalCode !== null) return;
  guard.ref();
  const gone = new Promise((resolve) => guard.once("exit", resolve));
  guard.stdin?.end();
  await gone;
}
