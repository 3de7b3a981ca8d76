// docs/mount-ui.md: each of its servers does the same with the pages that it mounts.
//
// Next.js is not installed here. A route handler of it is a function from a Request to a Response, and is called as such.
import { once } from "node:events";
import { symlink, writeFile } from "node:fs/promises";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { sharedWorld } from "../cli/world.ts";
import { blocksOf, readersProject, writeFiles } from "../helpers/readers-project.ts";

const ROUTE = "app/admin/jobs/[[...path]]/route.ts";
const BASE = "/admin/jobs";
const SESSION = `export const customerOf = async (_cookie: string | null) => ({ id: "acme", name: "Acme", endpoints: ["ep1"] });
const users = new Map([["ana", { name: "ana", isAdmin: true }], ["eve", { name: "eve", isAdmin: false }]]);
export const userOf = async (cookie: string | null) => users.get(cookie?.replace("session=", "") ?? "");
`;

// biome-ignore lint/suspicious/noExplicitAny: the modules of a page, and hosts whose types this file does not need
type Any = any;
type Ask = (path: string, init?: RequestInit) => Promise<Response>;

const leave: (() => Promise<unknown>)[] = [];
let project: string;
let files: readonly string[];
let audited: () => Promise<readonly Any[]>;
const load = async (file: string): Promise<Any> => import(path.join(project, file));

test.before(async () => {
  const it = await sharedWorld();
  project = await readersProject({ teardown: (end) => leave.push(end) }, [
    "express",
    "fastify",
    "koa",
    "hono",
  ]);
  const blocks = await blocksOf("docs/mount-ui.md");
  files = await writeFiles(project, [...blocks, ...(await blocksOf("docs/ui.md"))]);
  await writeFile(path.join(project, "session.ts"), SESSION);
  // no TypeScript file, because Express 4 has other types
  const express = blocks.find((one) => one.text.startsWith("// express.ts"))!;
  const four = fileURLToPath(import.meta.resolve("express4/package.json"));
  await symlink(path.dirname(four), path.join(project, "node_modules", "express4"));
  await writeFile(
    path.join(project, "express4.js"),
    express.text.replace('from "express"', 'from "express4"'),
  );
  const { DATABASE_URL } = process.env;
  process.env.DATABASE_URL = it.url;
  const { pool } = await load("admin.ts");
  process.env.DATABASE_URL = DATABASE_URL;
  audited = async () =>
    (await it.pool.query("select verb, partition, by, reason from dispatch_policy.audit order by id")).rows;
  leave.push(
    () => pool.end(),
    () => it.utils.release(),
    () => it.drop(),
  );
});

test.after.always(async () => {
  for (const end of leave) await end();
});

/** Asks a listener of Node's http server. */
async function asking(t: ExecutionContext, server: http.Server): Promise<Ask> {
  if (!server.listening) await once(server.listen(0, "127.0.0.1"), "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return (at, init) => fetch(origin + at, { redirect: "manual", ...init });
}

/** Calls a function that takes a Request, at an address that the client does not see. */
const calling =
  (answer: (request: Request) => Promise<Response>): Ask =>
  async (at, init) =>
    answer(new Request(`http://127.0.0.1${at}`, init));

async function fastify(t: ExecutionContext, app: Any): Promise<Ask> {
  await app.listen({ port: 0, host: "127.0.0.1" });
  t.teardown(() => app.close());
  return asking(t, app.server);
}

/** As Next.js calls the exports of a route: HEAD by GET, without what it would send. */
function nextJs(route: Any): Ask {
  return calling(async (request) => {
    const { method } = request;
    const params = Promise.resolve({ path: new URL(request.url).pathname.split("/").slice(3) });
    const answer: Response = await route[method === "HEAD" ? "GET" : method](request, { params });
    return method === "HEAD" ? new Response(null, answer) : answer;
  });
}

const express = (file: string) => async (t: ExecutionContext) =>
  asking(t, http.createServer((await load(file)).app));

const HOSTS: Readonly<Record<string, (t: ExecutionContext) => Promise<Ask>>> = {
  "node:http": async (t) => asking(t, (await load("node.ts")).app),
  "Express 4": express("express4.js"),
  "Express 5": express("express.ts"),
  Fastify: async (t) => fastify(t, (await load("fastify.ts")).app),
  Koa: async (t) => asking(t, http.createServer((await load("koa.ts")).app.callback())),
  Hono: async () => calling((await load("hono.ts")).app.fetch),
  "Next.js": async () => nextJs(await load(ROUTE)),
};

/** A form as a browser sends it from a page of the same origin. */
function pause(
  reason: string,
  headers: Record<string, string> = { "sec-fetch-site": "same-origin" },
): RequestInit {
  const form = { policy: "fetch_endpoint", partition: "ep1", for: "10 minutes", reason };
  return {
    method: "POST",
    body: new URLSearchParams(form),
    headers: { cookie: "session=ana", ...headers },
  };
}

async function isDone(t: ExecutionContext, answer: Response, reason: string): Promise<void> {
  t.is(answer.status, 200);
  t.regex(await answer.text(), /1 of 1 changed/);
  const done = (await audited()).filter((row) => row.reason === reason);
  t.deepEqual(done, [{ verb: "pause", partition: "ep1", by: "ana", reason }]);
}

test.serial("the pages have these files", (t) => {
  t.deepEqual(files.toSorted(), [
    ...["admin.ts", ROUTE, "express.ts", "fastify.ts", "from-preset.ts", "hono.ts", "koa.ts"],
    ...["next.config.ts", "node.ts", "server.ts", "tenants-by-context.ts", "tenants.ts"],
  ]);
});

for (const [name, host] of Object.entries(HOSTS))
  test.serial(`${name}: sign-in, pages, assets, headers, HEAD, 404 and forms`, async (t) => {
    const ask = await host(t);
    const signedIn = (at: string, { headers, ...init }: { headers?: object; method?: string } = {}) =>
      ask(BASE + at, { ...init, headers: { cookie: "session=ana", ...headers } });

    for (const at of ["/policies", "/assets/live.js", "/act/pause"]) {
      const away = await ask(BASE + at);
      t.deepEqual([away.status, away.headers.get("location")], [303, "/sign-in"], at);
      t.is((await ask(BASE + at, { headers: { cookie: "session=eve" } })).status, 401, at);
    }

    for (const at of ["", "/", "/policies", "/policies/", "/policy?policy=send_mail"])
      t.is((await signedIn(at)).status, 200, at);
    const page = await signedIn("/policies");
    t.regex(page.headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self'; /);
    t.is(page.headers.get("content-type"), "text/html; charset=UTF-8");
    t.is(page.headers.get("x-content-type-options"), "nosniff");
    t.is(page.headers.get("cache-control"), "private, no-cache");
    const body = await page.text();
    t.regex(body, /ana, operator.*send_mail/s);
    for (const [, href] of body.matchAll(/(?:href|src)="([^"#]+)"/g))
      t.regex(href!, /^(\/admin\/jobs\/|data:)/);

    const tag = page.headers.get("etag") ?? "";
    const again = await signedIn("/policies", { headers: { "if-none-match": tag } });
    t.deepEqual([again.status, await again.text()], [304, ""]);
    const head = await signedIn("/policies", { method: "HEAD" });
    t.deepEqual([head.status, head.headers.get("etag"), await head.text()], [200, tag, ""]);

    const asset = await signedIn("/assets/live.js");
    t.is(asset.headers.get("content-type"), "text/javascript; charset=utf-8");
    t.is(asset.headers.get("x-content-type-options"), "nosniff");
    t.regex(await asset.text(), /Idiomorph/);

    const nothing = await signedIn("/nothing");
    t.is(nothing.status, 404);
    t.regex(await nothing.text(), /There is no such page/);

    for (const headers of [{}, { "sec-fetch-site": "cross-site" }, { origin: "https://evil.example" }])
      t.is((await ask(`${BASE}/act/pause`, pause("forged", headers as Record<string, string>))).status, 403);
    t.false((await audited()).some(({ reason }) => reason === "forged"));
    await isDone(t, await ask(`${BASE}/act/pause`, pause(name)), name);
  });

/** The servers behind a parser of their host that reads forms. */
const PARSED: Readonly<Record<string, (t: ExecutionContext) => Promise<Ask>>> = {
  "Express 4": (t) => behindUrlencoded(t, "express4", "express4.js"),
  "Express 5": (t) => behindUrlencoded(t, "express", "express.ts"),
  async Fastify(t) {
    const app = (await load("fastify.ts?parsed")).app;
    app.addContentTypeParser(
      "application/x-www-form-urlencoded",
      { parseAs: "string" },
      (_request: Any, body: string, done: (error: null, form: object) => void) =>
        done(null, Object.fromEntries(new URLSearchParams(body))),
    );
    return fastify(t, app);
  },
  "Koa, handed on": async (t) => {
    const koa = await behindKoaParser((ctx) => Object.assign(ctx.req, { body: ctx.request.body }));
    return asking(t, http.createServer(koa.callback()));
  },
  async "Hono, a copy"() {
    const [{ Hono }, { cloneRawRequest }] = await Promise.all([imported("hono"), imported("hono/request")]);
    const { ui } = await load("admin.ts");
    const app = new Hono();
    app.use(hasParsed);
    app.all(`${BASE}/*`, async (c: Any) => ui(await cloneRawRequest(c.req)));
    return calling(app.fetch);
  },
};

const imported = async (name: string): Promise<Any> => import(import.meta.resolve(name));

async function behindUrlencoded(t: ExecutionContext, name: string, file: string): Promise<Ask> {
  const { default: of } = await imported(name);
  const app = of();
  app.use(of.urlencoded({ extended: true }));
  app.use((await load(file)).app);
  return asking(t, http.createServer(app));
}

async function behindKoaParser(then: (ctx: Any) => void) {
  const { default: Koa } = await imported("koa");
  const app = new Koa();
  app.use(async (ctx: Any, next: () => Promise<void>) => {
    ctx.request.body = Object.fromEntries(new URLSearchParams(await text(ctx.req)));
    then(ctx);
    return next();
  });
  for (const one of (await load("koa.ts")).app.middleware) app.use(one);
  return app;
}

async function hasParsed(c: Any, next: () => Promise<void>): Promise<void> {
  await c.req.parseBody();
  await next();
}

for (const [name, host] of Object.entries(PARSED))
  test.serial(`${name}: a form that a parser has read works`, async (t) => {
    const ask = await host(t);
    await isDone(t, await ask(`${BASE}/act/pause`, pause(`${name}, parsed`)), `${name}, parsed`);
    t.is((await ask(`${BASE}/policies`, { headers: { cookie: "session=ana" } })).status, 200);
  });

/** The servers behind a parser that keeps what it read to itself. */
const SWALLOWED: Readonly<Record<string, (t: ExecutionContext) => Promise<Ask>>> = {
  Koa: async (t) => asking(t, http.createServer((await behindKoaParser(() => {})).callback())),
  async Hono() {
    const { Hono } = await imported("hono");
    const app = new Hono();
    app.use(hasParsed);
    app.route("/", (await load("hono.ts")).app);
    return calling(app.fetch);
  },
  async "Next.js"() {
    const { POST } = await load(ROUTE);
    return calling(async (request) => {
      await request.text();
      return POST(request);
    });
  },
};

for (const [name, host] of Object.entries(SWALLOWED))
  test.serial(
    `${name}: a form that a parser has swallowed is refused, and the answer says what to do`,
    async (t) => {
      const ask = await host(t);
      const before = await audited();
      const refused = await ask(`${BASE}/act/pause`, pause("lost"));
      t.is(refused.status, 500);
      t.regex(await refused.text(), /The form's body was read before .* docs\/mount-ui\.md/);
      const stranger = await ask(`${BASE}/act/pause`, { ...pause("lost"), headers: {} });
      t.is(stranger.status, 303, "who is not signed in learns nothing of it");
      t.deepEqual(await audited(), before);
    },
  );
