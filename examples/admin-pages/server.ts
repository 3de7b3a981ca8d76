import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import http from "node:http";
import { text } from "node:stream/consumers";
import { createUi, toNodeHandler, type Viewer } from "graphile-worker-dispatch-policy/ui";
import type pg from "pg";

const BASE = "/admin/jobs";
const SIGN_IN = `<!doctype html><title>Sign in</title><form method="post" action="/sign-in">
<label>Password <input name="password" type="password"></label> <button>Sign in</button></form>`;

/** An application with a sign-in of its own. People who are signed in see the pages, below a path of the application. */
export function makeServer({ pool, password }: { pool: pg.Pool; password: string }): http.Server {
  /** By the id in the cookie. An application has a store for that. */
  const sessions = new Map<string, Viewer>();
  const ui = createUi({
    pool,
    basePath: BASE,
    authorize(request) {
      const id = /(?:^|; )session=([\w-]+)/.exec(request.headers.get("cookie") ?? "")?.[1];
      const viewer = sessions.get(id ?? "");
      return viewer ?? new Response(null, { status: 303, headers: { location: "/sign-in" } });
    },
  });
  const pages = toNodeHandler(ui);
  return http.createServer(async (request, response) => {
    const path = (request.url ?? "/").replace(/\?.*/, "");
    if (path === BASE || path.startsWith(`${BASE}/`)) return pages(request, response);
    if (path !== "/sign-in") return void response.writeHead(404).end();
    if (request.method !== "POST")
      return void response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(SIGN_IN);
    const given = new URLSearchParams(await text(request)).get("password") ?? "";
    if (!isSame(given, password)) return void response.writeHead(403).end("That is not the password.\n");
    const id = randomUUID();
    sessions.set(id, { name: "ana", role: "operator" }); // the audit has this name
    const cookie = `session=${id}; HttpOnly; SameSite=Lax; Path=/`; // and Secure, behind TLS
    response.writeHead(303, { location: `${BASE}/`, "set-cookie": cookie }).end();
  });
}

/** Compares digests, so that the time says nothing about the password. */
function isSame(one: string, other: string): boolean {
  const digest = (it: string) => createHash("sha256").update(it).digest();
  return timingSafeEqual(digest(one), digest(other));
}
