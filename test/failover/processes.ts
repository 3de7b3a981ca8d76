// The processes under test: each has a route of its own to the database.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { Fact } from "./events.ts";
import { openRoute, type Route } from "./route.ts";

export interface Orders {
  readonly url: string;
  /** The log. */
  readonly file: string;
  readonly name: string;
  /** How long work takes, at least and at most. */
  readonly workMs: readonly [number, number];
  /** Its pool is not one that survives. */
  readonly dies: boolean;
}

/** What the conductor tells adders: how many jobs a line lacks. */
export interface Room {
  readonly line: string;
  jobs: number;
}

export interface Member {
  readonly kind: "worker" | "adder";
  readonly name: string;
  readonly route: Route;
  readonly send: (rooms: Room[]) => void;
  readonly end: () => Promise<void>;
}

const STARTS_AGAIN_AFTER_MS = 500;

/** Starts a process. One that ends by itself starts again, as under a supervisor. `parameters`: of the connection's address. */
export async function startMember(
  kind: Member["kind"],
  { parameters, ...orders }: Omit<Orders, "url"> & { parameters: string },
  port: number,
  log: (fact: Fact) => void,
): Promise<Member> {
  const route = await openRoute();
  route.forward(port);
  const url = `postgres://postgres@127.0.0.1:${route.port}/postgres${parameters}`;
  let isOver = false;
  let child: ChildProcess;
  const start = () => {
    child = fork(new URL(`${kind}.ts`, import.meta.url), [JSON.stringify({ ...orders, url })], {
      execArgv: [],
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      env: { ...process.env, NO_LOG_SUCCESS: "1" },
    });
    child.on("error", () => {});
    child.on("exit", (code) => {
      if (isOver) return;
      log({ k: "exit", w: orders.name, code });
      setTimeout(() => isOver || start(), STARTS_AGAIN_AFTER_MS);
    });
  };
  start();
  return {
    ...{ kind, name: orders.name, route },
    send: (rooms) => void (child.connected && child.send(rooms, () => {})),
    async end() {
      isOver = true;
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await once(child, "exit");
      }
      route.close();
    },
  };
}
