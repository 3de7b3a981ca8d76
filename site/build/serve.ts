// Serves the built site on this machine, with the policy of its pages for workers as well, which a page's own does not reach.
import { createReadStream, statSync } from "node:fs";
import http, { type Server } from "node:http";
import path from "node:path";
import { listen } from "../../scripts/listen.ts";
import { POLICY_OF_PAGES } from "./page.ts";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
};

/** Also says the origin of its addresses. */
export async function serve(folder: string, port: number): Promise<{ server: Server; origin: string }> {
  const server = http.createServer(({ url = "/" }, response) => {
    const { pathname } = new URL(url, "http://localhost");
    const asked = path.join(
      folder,
      decodeURIComponent(pathname.endsWith("/") ? `${pathname}index.html` : pathname),
    );
    const isThere =
      asked.startsWith(folder + path.sep) && statSync(asked, { throwIfNoEntry: false })?.isFile();
    if (!isThere) {
      response.writeHead(404).end("There is no such page.\n");
      return;
    }
    response.writeHead(200, {
      "content-type": TYPES[path.extname(asked)] ?? "application/octet-stream",
      "content-security-policy": POLICY_OF_PAGES,
      "cache-control": asked.includes(`${path.sep}engine${path.sep}`) ? "max-age=3600" : "no-cache",
    });
    createReadStream(asked).pipe(response);
  });
  return { server, origin: await listen(server, port) };
}
