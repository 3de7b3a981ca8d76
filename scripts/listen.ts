import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Listens on this machine only. Resolves to the origin of its addresses. */
export async function listen(server: Server, port: number): Promise<string> {
  try {
    await once(server.listen(port, "127.0.0.1"), "listening");
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === "EADDRINUSE" ? new PortTaken(port) : error;
  }
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Its message is for the visitor: no stack trace says more. */
export class PortTaken extends Error {
  constructor(port: number) {
    super(`Port ${port} is taken. Name another one with --port, or 0 for any that is free.`);
  }
}
