// A way to a database, which forwards, or fails as networks do.
import { once } from "node:events";
import net, { type AddressInfo } from "node:net";

interface Pair {
  readonly client: net.Socket;
  readonly server: net.Socket | null;
  frozen: boolean;
}

export type Route = Awaited<ReturnType<typeof openRoute>>;

/** Listens on a port of its own. Until `forward` says where to, it refuses connections. */
export async function openRoute() {
  const pairs = new Set<Pair>();
  let to: number | "refuse" | "swallow" = "refuse";
  const listener = net.createServer({ noDelay: true }, (client) => {
    client.on("error", () => {});
    if (to === "refuse") return void client.resetAndDestroy();
    const server = to === "swallow" ? null : net.connect({ port: to, host: "127.0.0.1", noDelay: true });
    const pair: Pair = { client, server, frozen: server === null };
    pairs.add(pair);
    client.on("close", () => {
      pairs.delete(pair);
      server?.destroy();
    });
    if (server === null) return void client.pause();
    server.on("error", () => {});
    server.on("close", () => {
      if (!pair.frozen && !client.destroyed) client.resetAndDestroy(); // a host that is gone sends no end
    });
    client.pipe(server);
    server.pipe(client, { end: false }); // Node keeps the handle of a socket that is reset after its end
  });
  await once(listener.listen(0, "127.0.0.1"), "listening");

  const reset = () => {
    for (const { client } of pairs) client.resetAndDestroy();
  };
  return {
    port: (listener.address() as AddressInfo).port,
    /** New connections lead to this port. */
    forward(port: number): void {
      to = port;
    },
    /** Connections are reset, and new ones too. */
    refuse(): void {
      to = "refuse";
      reset();
    },
    /** Nothing passes any more, as if the host were gone: connections stay open, and new ones open. */
    swallow(): void {
      to = "swallow";
      for (const pair of pairs) {
        pair.frozen = true;
        for (const socket of [pair.client, pair.server]) socket?.unpipe().pause();
      }
    },
    /** Ends the connections there are. */
    reset,
    close(): void {
      for (const { client } of pairs) client.destroy();
      listener.close();
    },
  };
}
