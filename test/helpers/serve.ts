// The handler of metrics behind Node's http server, as docs/production.md has it.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { ExecutionContext } from "ava";
import type { metricsHandler } from "../../src/index.ts";

/** Returns the server's host and port. */
export async function serve(
  t: ExecutionContext,
  handler: ReturnType<typeof metricsHandler>,
): Promise<string> {
  const server = createServer(async ({ method = "GET" }, response) => {
    const answer = await handler({ method });
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(await answer.text());
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}
