import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { toNodeHandler } from "graphile-worker-dispatch-policy/ui";
import { type App, BASE, type Listening } from "./sign-in.ts";

/** Node's own server, without a framework. */
export async function listen({ ui, signIn }: App): Promise<Listening> {
  const pages = toNodeHandler(ui);
  const server = http.createServer(async (request, response) => {
    const path = (request.url ?? "/").replace(/\?.*/, "");
    if (path === BASE || path.startsWith(`${BASE}/`)) return pages(request, response);
    if (path !== "/sign-in") return void response.writeHead(404).end();
    if (request.method !== "POST")
      return void response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(signIn.form);
    const cookie = signIn.enter(new URLSearchParams(await text(request)).get("password") ?? "");
    if (!cookie) return void response.writeHead(403).end("That is not the password.\n");
    response.writeHead(303, { location: `${BASE}/`, "set-cookie": cookie }).end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
