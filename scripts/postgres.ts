/**
 * Runs a command with a PostgreSQL, named by DATABASE_URL, that lives as long as the command does:
 *
 *   node scripts/postgres.ts [--version 14] [--durable] [--preload LIBRARY]... [--set NAME=VALUE]... -- COMMAND [ARGUMENT]...
 *
 * POSTGRES_VERSION=14, PG_DURABLE=1 and PG_PRELOAD=LIBRARY,... do the same from the environment. Where PostgreSQL comes
 * from: see startPostgres in postgres/start.ts.
 */
import { spawn } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { ServerOptions } from "./postgres/settings.ts";
import { type Postgres, startPostgres } from "./postgres/start.ts";

/** Each test file and each worker is a process that reads the same sources: Node compiles them once for all. */
const COMPILE_CACHE = fileURLToPath(new URL("../node_modules/.cache/node", import.meta.url));

try {
  const { command, options } = readArguments(process.argv.slice(2));
  const postgres = await startAndSay(options);
  process.exitCode = await run(command, postgres.url);
  await postgres.stop();
} catch (error) {
  console.error(`# ${(error as Error).message}`);
  process.exitCode = 1;
}

function readArguments(args: string[]): { command: string[]; options: ServerOptions } {
  const end = args.includes("--") ? args.indexOf("--") : args.length;
  const { values } = parseArgs({
    args: args.slice(0, end),
    options: {
      version: { type: "string" },
      durable: { type: "boolean", default: process.env.PG_DURABLE === "1" },
      preload: { type: "string", multiple: true, default: process.env.PG_PRELOAD?.split(",") ?? [] },
      set: { type: "string", multiple: true, default: [] },
    },
  });
  if (values.version) {
    process.env.POSTGRES_VERSION = values.version; // servers that the command starts are of this version too
    delete process.env.DATABASE_URL;
  }
  const command = args.slice(end + 1);
  if (command.length === 0) throw new Error("No command: node scripts/postgres.ts [options] -- COMMAND");
  const settings = Object.fromEntries(values.set.map(readSetting));
  return { command, options: { durable: values.durable, preload: values.preload, settings } };
}

function readSetting(text: string): [string, string] {
  const equals = text.indexOf("=");
  if (equals < 1) throw new Error(`--set wants NAME=VALUE, not "${text}"`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}

async function startAndSay(options: ServerOptions): Promise<Postgres> {
  const before = performance.now();
  const postgres = await startPostgres(options);
  const took = Math.round(performance.now() - before);
  const durability = options.durable ? "durable" : "not durable, for tests";
  // A server that was there before keeps its own settings.
  const how = postgres.via === "DATABASE_URL" ? "with the settings it has" : durability;
  console.error(`# PostgreSQL from ${postgres.via}, ${how}, ready in ${took} ms`);
  return postgres;
}

function run([program = "", ...args]: string[], url: string): Promise<number> {
  const env = { NODE_COMPILE_CACHE: COMPILE_CACHE, ...process.env, DATABASE_URL: url };
  const child = spawn(program, args, { stdio: "inherit", env });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => child.kill(signal));
  return new Promise((resolve) => {
    child.once("error", (error) => {
      console.error(error.message);
      resolve(127);
    });
    child.once("exit", (code, signal) => resolve(code ?? 128 + os.constants.signals[signal ?? "SIGTERM"]));
  });
}
