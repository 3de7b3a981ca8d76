import { existsSync } from "node:fs";
import path from "node:path";

export interface ServerOptions {
  /**
   * PostgreSQL's own durability: for demos, benchmarks and crash tests. Otherwise nothing is synced to disk,
   * which makes tests fast and loses data only if the machine goes down.
   */
  readonly durable?: boolean;
  /** Libraries for shared_preload_libraries; those that the installation lacks are left out. */
  readonly preload?: readonly string[];
  /** Further settings, as in postgresql.conf. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Further variables of the server's environment. Servers in Docker do not have them. */
  readonly env?: Readonly<Record<string, string>>;
  /** Fills the data folder in place of initdb, as for a standby. Servers in Docker do not ask for it. */
  readonly fill?: (data: string) => Promise<void>;
}

const NOT_DURABLE = {
  ...{ fsync: "off", full_page_writes: "off" },
  // A vacuum that shortens a table has it locked for longer than the engine waits. So tests would end in another way, rarely.
  // Durable servers, whose tests and benchmarks last longer, vacuum as usual.
  autovacuum_naptime: "1d",
};

/** Arguments for the `postgres` program. `has` says whether the installation has a library. */
export function serverArguments(options: ServerOptions, has: (library: string) => boolean): string[] {
  const preload = (options.preload ?? []).filter(has);
  const settings: Record<string, string> = {
    max_connections: "400", // three test files at once, and up to 60 databases of one file, each with a pool
    ...(options.durable ? {} : NOT_DURABLE),
    ...(preload.length > 0 ? { shared_preload_libraries: preload.join(",") } : {}),
    ...options.settings,
  };
  return Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

/** Whether an installation, given its folder of programs, has a loadable library of that name. */
export function hasLibrary(bin: string, library: string): boolean {
  const folders = ["../lib/postgresql", "../lib"].map((folder) => path.join(bin, folder));
  return folders.some((folder) =>
    ["so", "dylib", "dll"].some((suffix) => existsSync(path.join(folder, `${library}.${suffix}`))),
  );
}
