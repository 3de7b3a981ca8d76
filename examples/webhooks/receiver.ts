import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

export interface Receiver {
  readonly url: string;
  readonly received: { id: number; type: string }[];
  /** Resolves when so many events have come. */
  until(count: number): Promise<void>;
  close(): void;
}

/** The customers' endpoints: the loud one's says 429 to its third request. All others take 50 ms. */
export async function startReceiver(): Promise<Receiver> {
  const received: Receiver["received"] = [];
  let releases = 0;
  const server = createServer(async (request, response) => {
    const event = JSON.parse(String(Buffer.concat(await request.toArray())));
    if (event.type === "release.published") releases += 1;
    if (event.type === "release.published" && releases === 3) {
      response.writeHead(429, { "retry-after": "1" }).end();
      return;
    }
    await delay(50);
    received.push(event);
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    received,
    async until(count) {
      while (received.length < count) await delay(50);
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
