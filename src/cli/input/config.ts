import { existsSync } from "node:fs";
import { resolvePreset } from "graphile-config";
import { loadConfig } from "graphile-config/load";
import type { DispatchPolicyOptions } from "../../settings.ts";
import { UsageError } from "../command.ts";

/** What a command takes from the application's configuration. */
export interface Config {
  readonly connectionString: string | undefined;
  readonly schema: string | undefined;
  readonly options: DispatchPolicyOptions | undefined;
}

/**
 * The preset of a file, or of `graphile.config.*` in this folder: found and loaded as Graphile Worker's own command does.
 *
 * @throws {UsageError} if there is no such file
 */
export async function readConfig(file: string | undefined): Promise<Config | undefined> {
  if (file !== undefined && !existsSync(file)) throw new UsageError(`--config: there is no file ${file}`);
  const preset = await loadConfig(file);
  if (!preset) return undefined;
  const { worker, dispatchPolicy } = resolvePreset(preset);
  return { connectionString: worker?.connectionString, schema: worker?.schema, options: dispatchPolicy };
}
