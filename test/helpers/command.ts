// The command line, run as a user runs it.
import { execFile, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** Runs a command on a database. `code` is its exit code. */
export function runCommand(url: string, ...args: readonly string[]) {
  return runIn({ env: { DATABASE_URL: url } }, ...args);
}

/** The same in another environment, or in another folder. */
export async function runIn(
  { env = {}, cwd }: { readonly env?: NodeJS.ProcessEnv; readonly cwd?: string },
  ...args: readonly string[]
) {
  const options = { env: { ...process.env, NODE_NO_WARNINGS: "1", ...env }, ...(cwd && { cwd }) };
  const answer = await promisify(execFile)(process.execPath, [MAIN, ...args], options).catch(
    (error) => error,
  );
  const { stdout, stderr, code = 0 } = answer as { stdout: string; stderr: string; code?: number };
  return { stdout, stderr, code };
}

/** A command that goes on. */
export function start(url: string, ...args: readonly string[]) {
  const env = { ...process.env, DATABASE_URL: url, NODE_NO_WARNINGS: "1" };
  return spawn(process.execPath, [MAIN, ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
}

/** The rows of a list that a command printed with `--json`, one on each line. */
// biome-ignore lint/suspicious/noExplicitAny: rows of any shape
export function rowsOf(stdout: string): any[] {
  return stdout
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}
