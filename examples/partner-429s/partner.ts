import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Asked {
  readonly account: string;
  readonly status: number;
  /** By performance.now(). */
  readonly at: number;
}

/** A partner that refuses acme's third order, and tells it to come back in a second. */
export async function startPartner() {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    const [, , account = ""] = (request.url ?? "").split("/");
    const nth = asked.filter((it) => it.account === account).length + 1;
    const status = account === "acme" && nth === 3 ? 429 : 200;
    asked.push({ account, status, at: performance.now() });
    if (status === 429) response.setHeader("retry-after", "1");
    response.writeHead(status).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
