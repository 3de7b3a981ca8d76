import { resolvePreset } from "graphile-config";
import { check, type Rule, show } from "../checks/options.ts";
import { openPool } from "../db/looking.ts";
import type { Pool } from "../db/stream-pool.ts";
import { ArgumentError } from "../errors.ts";
import { readSettings } from "../settings.ts";

/** Which database the pages are of. */
export interface Place {
  /** This package's schema; undefined: the default. */
  readonly schema: string | undefined;
  /** The connections, and what closes those that were made here. */
  open(): { readonly pool: Pool; release(): Promise<void> };
}

const aPool: Rule = {
  expects: "a pool of pg",
  accepts: (value) => typeof (value as { connect?: unknown } | null)?.connect === "function",
};
const aPreset: Rule = {
  expects: "a preset of Graphile Worker, such as { extends: [WorkerPreset, dispatchPolicyPreset(…)] }",
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};

/** @throws {ArgumentError} unless exactly one of `pool` and `preset` is given, and names a database of this package */
export function placeOf({ pool, preset }: { readonly pool?: unknown; readonly preset?: unknown }): Place {
  if (pool !== undefined && preset !== undefined)
    throw new ArgumentError(
      "createUi: expected pool or preset, got both: give pool for connections of your own, and preset for new ones to the " +
        "database of your workers",
    );
  if (pool === undefined && preset === undefined)
    throw new ArgumentError(
      "createUi: expected pool or preset, got neither: give a pool of pg, or the preset of your workers",
    );
  return preset === undefined ? ofPool(pool) : ofPreset(preset);
}

/** The host's own pool, which it closes itself. */
function ofPool(pool: unknown): Place {
  check("createUi: pool", pool, aPool);
  return { schema: undefined, open: () => ({ pool: pool as Pool, release: async () => {} }) };
}

function ofPreset(preset: unknown): Place {
  check("createUi: preset", preset, aPreset);
  const { worker, dispatchPolicy } = resolvePreset(preset as GraphileConfig.Preset);
  if (dispatchPolicy === undefined)
    throw new ArgumentError(
      "createUi: preset has no dispatchPolicyPreset, expected the preset of your workers, which names it in its extends",
    );
  const connectionString = worker?.connectionString || process.env.DATABASE_URL || undefined;
  if (connectionString === undefined && !process.env.PGDATABASE)
    throw new ArgumentError(
      `createUi: preset names no database: worker.connectionString is ${show(worker?.connectionString)}. ` +
        "Set it, or DATABASE_URL or PGDATABASE in the environment, or give pool in place of preset",
    );
  return { schema: readSettings(dispatchPolicy).schema, open: () => opened(connectionString) };
}

function opened(connectionString: string | undefined): ReturnType<Place["open"]> {
  const pool = openPool(connectionString);
  let closing: Promise<void> | undefined;
  return {
    pool,
    release() {
      closing ??= pool.end();
      return closing;
    },
  };
}
