// The command line, run as a user runs it.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** Runs a command on a database. `code` is its exit code. */
export async function runCommand(url: string, ...args: readonly string[]) {
  const env = { ...process.env, DATABASE_URL: url, NODE_NO_WARNINGS: "1" };
  const answer = await promisify(execFile)(process.execPath, [MAIN, ...args], { env }).catch(
    (error) => error,
  );
  const { stdout, stderr, code = 0 } = answer as { stdout: string; stderr: string; code?: number };
  return { stdout, stderr, code };
}
