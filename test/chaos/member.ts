// What every process that the conductor starts has: its orders, its random numbers and its line to the conductor.

import { setTimeout as delay } from "node:timers/promises";
import type { Runner } from "graphile-worker";
import { random } from "../helpers/random.ts";
import type { Command, News, Orders } from "./messages.ts";

/** After an error, which may come again. */
const PAUSE_MS = 250;

export const orders: Orders = JSON.parse(process.argv[2] ?? "{}");
export const chance = random(orders.seed);

const listeners: ((command: Command) => void)[] = [];
let over = false;

process.on("message", (message) => {
  const command = message as Command;
  if ("end" in command) over = true;
  for (const listener of listeners) listener(command);
});
process.on("disconnect", () => process.exit(0));
// what nobody catches ends a process, as it would in production
process.on("uncaughtException", (error) => {
  if (isTrouble(error) || isReleasedTwice(error)) tell({ met: "crash" });
  else tell({ failure: `${orders.role} crashed: ${describe(error)}` });
  process.exit(1);
});

export const isOver = () => over;

export function onCommand(listener: (command: Command) => void): void {
  listeners.push(listener);
}

/** Stops a worker pool when the conductor ends its process. The pool may just have shut itself down. */
export function stopAtEnd(running: Promise<Pick<Runner, "stop">>): void {
  onCommand((command) => {
    if (!("end" in command)) return;
    const stopped = running.then((runner) => runner.stop());
    stopped.catch((error) => {
      if (!/already stopped/.test(error.message)) throw error;
    });
  });
}

export function tell(news: News): void {
  if (process.connected) process.send?.(news);
}

/** Runs `act` until the conductor calls it off. Errors are failures, but for those that the conductor made. */
export async function repeat(act: () => Promise<unknown>): Promise<void> {
  while (!over) {
    await act().catch(async (error) => {
      judge(error);
      await delay(PAUSE_MS);
    });
  }
}

export function judge(error: unknown): void {
  if (isTrouble(error)) tell({ met: "lost connection" });
  else tell({ failure: `${orders.role} ${orders.place}: ${describe(error)}` });
}

/** Cut connections, a server that is away or full; Graphile Worker puts some into messages of its own. */
const TROUBLE_CODES = /^(57P0[123]|08...|53300|ECONNREFUSED|ECONNRESET|EPIPE)$/;
const TROUBLE =
  /[Cc]onnection terminated|terminating connection|a connection error|timeout exceeded when trying to connect|ECONNREFUSED|ECONNRESET|database system is|too many clients/;

export function isTrouble(error: unknown): boolean {
  const { code, message, cause } = error as { code?: string; message?: string; cause?: unknown };
  return (
    TROUBLE_CODES.test(code ?? "") || TROUBLE.test(message ?? "") || (cause !== undefined && isTrouble(cause))
  );
}

/**
 * Graphile Worker gives its listening connection back twice if that breaks while a pool stops that has just started. It does
 * so without this package, too.
 */
function isReleasedTwice({ message, stack = "" }: Error): boolean {
  return /already been released to the pool/.test(message) && /graphile-worker\/dist\/main\.js/.test(stack);
}

function describe(error: unknown): string {
  const { code, message, stack } = error as { code?: string; message?: string; stack?: string };
  return `${code ?? ""} ${message ?? error} ${process.env.CHAOS_LOG ? stack : ""}`;
}
