import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Outgoing connections have ports from 32768 on (Linux), or from 49152 on. */
const [FROM, TO] = [15_000, 30_000];

/**
 * A port of this machine on which nobody listens. Whoever asks for it needs it a moment later. Of the ports that the system gives
 * away, an outgoing connection may have taken it by then. So this one is not among those.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FROM, TO);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const server = createServer();
  server.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EADDRINUSE") resolve(false);
    else reject(error);
  });
  server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  return promise;
}
