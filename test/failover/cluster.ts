// A primary and its standby on this machine, and promotions.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import pg from "pg";
import { type Postgres, startPostgres } from "../../scripts/postgres/start.ts";
import { until } from "../helpers/until.ts";
import { openRoute, type Route } from "./route.ts";

const SETTINGS = {
  ...{ synchronous_commit: "on", full_page_writes: "on", wal_keep_size: "512MB", shared_buffers: "64MB" },
  ...{
    wal_receiver_timeout: "5s",
    wal_sender_timeout: "5s",
    wal_retrieve_retry_interval: "200ms",
    jit: "off",
  },
};

export interface Server extends Postgres {
  readonly port: number;
  readonly data: string;
}

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

export interface Hosts {
  /** What commits wait for. "off": for no standby. */
  readonly commit: "off" | "on" | "remote_apply";
  /** Servers sync to disk. */
  readonly durable: boolean;
  /** So many seconds the clock of each second server is ahead of the others'. It takes Debian's `libfaketime`. */
  readonly aheadSeconds: number;
}

/** `setUp` gets the address of the primary before it has a standby. */
export async function startCluster(
  { commit, durable, aheadSeconds }: Hosts,
  setUp: (url: string) => Promise<void>,
) {
  const settings = { ...SETTINGS, synchronous_commit: commit === "off" ? "on" : commit };
  let servers = 0;
  const start = (more: Record<string, string> = {}, fill?: (data: string) => Promise<void>) =>
    startServer({ ...settings, ...more }, durable, servers++ % 2 === 1 ? aheadSeconds : 0, fill);
  let primary = await start();
  let standby: Server | undefined;
  let replication: Route | undefined;

  /** Makes a standby by a copy of the primary's folder. PostgreSQL from npm lacks pg_basebackup. */
  async function seed(): Promise<void> {
    const from = primary;
    replication?.close();
    replication = await openRoute();
    replication.forward(from.port);
    const conninfo = `host=127.0.0.1 port=${replication.port} user=postgres application_name=standby`;
    standby = await start({ primary_conninfo: conninfo }, (data) => copy(from, data));
    await until("the standby has caught up", async () => {
      const behind = "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)";
      const text = `select from pg_stat_replication where state = 'streaming' and ${behind} < 1000000`;
      return (await ask(from, text)).length > 0;
    });
    if (commit === "off") return;
    // not before: a primary without its standby would not commit
    await ask(from, "alter system set synchronous_standby_names = 'standby'");
    await ask(from, "select pg_reload_conf()");
    await until("the standby is synchronous", async () => {
      const text = "select from pg_stat_replication where sync_state = 'sync'";
      return (await ask(from, text)).length > 0;
    });
  }

  /** It ends or stands still with all its processes at once, as a host does. */
  async function signal(server: Server, name: "SIGKILL" | "SIGSTOP"): Promise<() => void> {
    const postmaster = Number(readFileSync(path.join(server.data, "postmaster.pid"), "utf8").split("\n")[0]);
    const backends = await ask(server, "select pid from pg_stat_activity");
    const pids = [postmaster, ...backends.map(({ pid }) => pid as number)];
    const send = (what: NodeJS.Signals) => {
      for (const pid of pids)
        try {
          process.kill(pid, what);
        } catch {} // one that has ended
    };
    send(name);
    return () => send("SIGKILL");
  }

  try {
    await setUp(primary.url);
    await seed();
  } catch (error) {
    await Promise.all([primary.stop(), standby?.stop()]);
    throw error;
  }
  return {
    get primary(): Server {
      return primary;
    },
    /** Asks the primary. */
    ask: (text: string) => ask(primary, text),
    /** Kills a server, or has it stand still. Returns what kills it for good. */
    signal,
    /** The standby receives nothing any more. */
    cutReplication: () => replication!.swallow(),
    /** Makes the standby the primary. It has no standby until `seed`. Returns the old primary. */
    async promote(): Promise<Server> {
      const old = primary;
      const [row] = await ask(standby!, "select pg_promote(true, 60) as promoted");
      if (!row.promoted) throw new Error("The standby did not become a primary within 60 s");
      primary = standby!;
      standby = undefined;
      return old;
    },
    seed,
    async stop(): Promise<void> {
      replication?.close();
      await Promise.all([primary.stop(), standby?.stop()]);
    },
  };
}

async function startServer(
  settings: Record<string, string>,
  durable: boolean,
  aheadSeconds: number,
  fill?: (data: string) => Promise<void>,
): Promise<Server> {
  const env = aheadSeconds === 0 ? {} : clockAhead(aheadSeconds);
  const how = { own: true, restartable: true, durable, settings, env };
  const server = await startPostgres({ ...how, ...(fill && { fill }) });
  return { ...server, data: server.data!, port: Number(new URL(server.url).port) };
}

function clockAhead(seconds: number): Record<string, string> {
  const places = (process.env.FAKETIME_LIBRARY ?? "/usr/lib/*/faketime/libfaketime.so.1").split(":");
  const [library] = places.flatMap((place) => globSync(place));
  if (library === undefined)
    throw new Error(
      `No libfaketime in ${places}: install Debian's package libfaketime, or set FAKETIME_LIBRARY to its path`,
    );
  return { LD_PRELOAD: library, FAKETIME: `+${seconds}s`, FAKETIME_DONT_FAKE_MONOTONIC: "1" };
}

const BACKUP = ["pg_backup_start('standby', true)", "pg_backup_stop(false)"] as const;
const BACKUP_IN_14 = ["pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)"] as const;

/** The write-ahead log comes by replication, but not which timelines there were. The rest is of the server, not of its data. */
const LEFT_OUT = ["postmaster.*", "pg_wal/*", "pg_replslot/*", "*.signal", "postgresql.auto.conf"];

async function copy(from: Server, to: string): Promise<void> {
  const client = new pg.Client(from.url);
  await client.connect();
  const { rows: versions } = await client.query(
    "select current_setting('server_version_num')::int as version",
  );
  const [start, stop] = versions[0].version < 150_000 ? BACKUP_IN_14 : BACKUP;
  await client.query(`select ${start}`);
  // not by fs.cp, which fails on a file that vanishes meanwhile; and a copy here would hold up the routes
  const text = `cp -a '${from.data}/.' . 2>/dev/null; mv pg_wal/*.history . 2>/dev/null; rm -rf ${LEFT_OUT.join(" ")};
    mv *.history pg_wal 2>/dev/null; touch standby.signal postgresql.auto.conf`;
  await once(spawn("sh", ["-c", text], { cwd: to, stdio: "ignore" }), "exit");
  const { rows } = await client.query(`select labelfile from ${stop}`);
  writeFileSync(path.join(to, "backup_label"), rows[0].labelfile);
  await client.end();
}

// biome-ignore lint/suspicious/noExplicitAny: rows of any shape
async function ask(server: Server, text: string): Promise<any[]> {
  const client = new pg.Client({
    connectionString: server.url,
    connectionTimeoutMillis: 3000,
    query_timeout: 60_000,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    return (await client.query(text)).rows;
  } finally {
    client.end().catch(() => {});
  }
}
