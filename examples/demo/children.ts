import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";

/** Every process this one started. They also end by themselves when this one is gone, even by `kill -9`. */
const children = new Set<ChildProcess>();

/** Starts a file of this folder as a process; resolves with the first message it sends. */
export async function start<Message>(file: string, args: string[] = []): Promise<[ChildProcess, Message]> {
  const child = fork(new URL(file, import.meta.url), args);
  children.add(child);
  child.once("exit", () => children.delete(child));
  const [message] = await Promise.race([once(child, "message"), failure(child, file)]);
  return [child, message as Message];
}

async function failure(child: ChildProcess, file: string): Promise<never> {
  const [code] = await once(child, "exit");
  throw new Error(`${file} ended with code ${code} before it was ready`);
}

/** Asks a process to finish what it does, and ends it when it does not within five seconds. */
export async function stop(child: ChildProcess): Promise<void> {
  if (!children.has(child)) return;
  const ended = once(child, "exit");
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  child.send("stop");
  await ended;
  clearTimeout(timer);
}

export function killAll(): void {
  for (const child of children) child.kill("SIGKILL");
}
