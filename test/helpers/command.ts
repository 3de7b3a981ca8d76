// The command line, run as a user runs it.
import { type ChildProcess, execFile, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Answer, Line } from "../fixtures/command-lines.ts";

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

const LINES = fileURLToPath(new URL("../fixtures/command-lines.ts", import.meta.url));
let runner: ChildProcess | undefined;
let last: Promise<unknown> = Promise.resolve();

/**
 * Runs a command in a process that serves all tests of the file, one after the other. A process for each takes ten times as much
 * of a processor, so that is for tests of the process itself: its end, its signals, its terminal.
 */
export function runInTurn(env: Line["env"], ...args: readonly string[]): Promise<Answer> {
  const answer = last.then(() => ask({ env, args }));
  last = answer.catch(() => {}); // whoever asked gets the error
  return answer;
}

async function ask(line: Line): Promise<Answer> {
  if (!runner?.connected) {
    const env = { ...process.env, NODE_NO_WARNINGS: "1" };
    runner = fork(LINES, { env, execArgv: [], stdio: ["ignore", "ignore", "inherit", "ipc"] });
    runner.unref();
  }
  const { channel } = runner;
  channel!.ref();
  const end = new AbortController();
  const { signal } = end;
  try {
    runner.send(line);
    const gone = once(runner, "exit", { signal }).then(([code]) => {
      throw new Error(`The process of command lines ended with ${code} at: ${line.args.join(" ")}`);
    });
    const [answer] = await Promise.race([once(runner, "message", { signal }), gone]);
    return answer;
  } finally {
    end.abort();
    channel!.unref(); // the tests' process ends without it
  }
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
