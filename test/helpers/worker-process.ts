// A worker in a process of its own, to be killed and paused.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { ExecutionContext } from "ava";
import type { TestDatabase } from "./database.ts";
import { until } from "./until.ts";

const WORKER = fileURLToPath(new URL("../fixtures/crash/worker.ts", import.meta.url));

export interface WorkerProcess {
  readonly pid: number;
  /** Resolves once it said this so often, counted from its start. */
  says(what: string, times?: number): Promise<void>;
  /** How often it said this. */
  said(what: string): number;
  signal(name: "SIGKILL" | "SIGSTOP" | "SIGCONT" | "SIGTERM"): void;
  readonly gone: Promise<unknown>;
}

/** Started, and running jobs. `diesAfter`: killed once a statement that says this has succeeded. */
export async function startProcess(
  t: ExecutionContext,
  { url }: TestDatabase,
  mode: string,
  diesAfter = "",
  more: Readonly<Record<string, string>> = {},
): Promise<WorkerProcess> {
  const env = {
    ...process.env,
    DATABASE_URL: url,
    MODE: mode,
    NO_LOG_SUCCESS: "1",
    DIES_AFTER: diesAfter,
    ...more,
  };
  const child: ChildProcess = spawn(process.execPath, [WORKER], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const gone = once(child, "exit");
  const said: string[] = [];
  createInterface({ input: child.stdout! }).on("line", (line) => said.push(line));
  t.teardown(async () => {
    child.kill("SIGKILL");
    await gone;
  });
  const count = (what: string) => said.filter((line) => line === what).length;
  const worker: WorkerProcess = {
    pid: child.pid!,
    said: count,
    says: async (what, times = 1) => {
      await until(`process ${child.pid} says "${what}" ${times} times`, () => count(what) >= times, {
        withinMs: 60_000,
      });
    },
    signal: (name) => void child.kill(name),
    gone,
  };
  if (diesAfter === "") await worker.says("runs");
  return worker;
}
