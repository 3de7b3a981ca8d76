// docs/ui.md: each of its servers does the same with the pages that it mounts.
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { tokenOf } from "../../src/ui/pages/one-time.ts";
import {
  type Any,
  BASE,
  HOSTS,
  type Hosts,
  hosts,
  type Listener,
  ofFastify,
  ofHono,
  ofNextJs,
  ROUTE,
} from "./hosts.ts";

type Ask = (path: string, init?: RequestInit) => Promise<Response>;

let it: Hosts;
const load = (file: string) => it.load(file);
const audited = () => it.audited();

test.before(async () => {
  it = await hosts();
});
test.after.always(() => it?.end());

/** Asks a listener of Node's http server. */
async function asking(t: ExecutionContext, listener: Listener): Promise<Ask> {
  const server = http.createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return (at, init) => fetch(origin + at, { redirect: "manual", ...init });
}

/** A form as a browser sends it from a page of the same origin. */
function pause(
  reason: string,
  headers: Record<string, string> = { "sec-fetch-site": "same-origin" },
): RequestInit {
  const form = { policy: "fetch_endpoint", partition: "ep1", reason, form: tokenOf(new Date()) };
  return {
    method: "POST",
    body: new URLSearchParams(form),
    headers: { cookie: "session=ana", ...headers },
  };
}

async function isDone(t: ExecutionContext, ask: Ask, reason: string): Promise<void> {
  const answer = await ask(`${BASE}/act/pause`, pause(reason));
  t.is(answer.status, 303);
  const { headers } = pause(reason);
  const page = await ask(answer.headers.get("location")!, { headers: headers! });
  t.regex(await page.text(), /role="status">Paused partition ep1/);
  const done = (await audited()).filter((row) => row.reason === reason);
  t.deepEqual(done, [{ verb: "pause", partition: "ep1", by: "ana", reason }]);
}

test.serial("the pages have these files", (t) => {
  t.deepEqual(it.files.toSorted(), [
    ...["admin.ts", ROUTE, "basic-auth.ts", "express-session.ts", "express.ts", "fastify.ts", "hono.ts"],
    ...["koa.ts", "next.config.ts", "node.ts", "proxy-sign-in.ts", "session-pages.ts", "tenants.ts"],
  ]);
});

for (const [name, host] of Object.entries(HOSTS))
  test.serial(`${name}: sign-in, pages, assets, headers, HEAD, 404 and forms`, async (t) => {
    const ask = await asking(t, await host(it));
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
    await isDone(t, ask, name);
  });

/** The servers behind a parser of their host that reads forms. */
const PARSED: Readonly<Record<string, () => Promise<Listener>>> = {
  "Express 4": () => behindUrlencoded("express4", "express4.js"),
  "Express 5": () => behindUrlencoded("express", "express.ts"),
  async Fastify() {
    const app = (await load("fastify.ts?parsed")).app;
    app.addContentTypeParser(
      "application/x-www-form-urlencoded",
      { parseAs: "string" },
      (_request: Any, body: string, done: (error: null, form: object) => void) =>
        done(null, Object.fromEntries(new URLSearchParams(body))),
    );
    return ofFastify(app);
  },
  async "Koa, passed on"() {
    const koa = await behindKoaParser((ctx) => Object.assign(ctx.req, { body: ctx.request.body }));
    return koa.callback();
  },
  async "Hono, a copy"() {
    const [{ Hono }, { cloneRawRequest }] = await Promise.all([imported("hono"), imported("hono/request")]);
    const { ui } = await load("admin.ts");
    const app = new Hono();
    app.use(hasParsed);
    app.all(`${BASE}/*`, async (c: Any) => ui(await cloneRawRequest(c.req)));
    return ofHono(app);
  },
};

const imported = async (name: string): Promise<Any> => import(import.meta.resolve(name));

async function behindUrlencoded(name: string, file: string): Promise<Listener> {
  const { default: of } = await imported(name);
  const app = of();
  app.use(of.urlencoded({ extended: true }));
  app.use((await load(file)).app);
  return app;
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
    const ask = await asking(t, await host());
    await isDone(t, ask, `${name}, parsed`);
    t.is((await ask(`${BASE}/policies`, { headers: { cookie: "session=ana" } })).status, 200);
  });

/** The servers behind a parser that keeps what it read to itself. */
const SWALLOWED: Readonly<Record<string, () => Promise<Listener>>> = {
  Koa: async () => (await behindKoaParser(() => {})).callback(),
  async Hono() {
    const { Hono } = await imported("hono");
    const app = new Hono();
    app.use(hasParsed);
    app.route("/", (await load("hono.ts")).app);
    return ofHono(app);
  },
  async "Next.js"() {
    const { POST } = await load(ROUTE);
    const swallowing = async (request: Request) => {
      await request.text();
      return POST(request);
    };
    return ofNextJs({ POST: swallowing });
  },
};

for (const [name, host] of Object.entries(SWALLOWED))
  test.serial(
    `${name}: a form that a parser has swallowed is refused, and the answer says what to do`,
    async (t) => {
      const ask = await asking(t, await host());
      const before = await audited();
      const refused = await ask(`${BASE}/act/pause`, pause("lost"));
      t.is(refused.status, 500);
      t.regex(
        await refused.text(),
        /The form's body was read before .* docs\/ui\.md#a-body-that-was-read-before/,
      );
      const stranger = await ask(`${BASE}/act/pause`, { ...pause("lost"), headers: {} });
      t.is(stranger.status, 303, "who is not signed in learns nothing of it");
      t.deepEqual(await audited(), before);
    },
  );

const HERE = `http://127.0.0.1${BASE}/policies`;
const who = async (answer: Response) => /<p class="who">([^<]*)</.exec(await answer.text())?.[1];

test.serial("a proxy's headers sign in, unless its secret is missing", async (t) => {
  process.env.PROXY_SECRET = "s3cret";
  const { ui } = await load("proxy-sign-in.ts");
  const headers = { "x-forwarded-email": "ana@example.org", "x-proxy-secret": "s3cret" };
  const ask = (given: Record<string, string>) => ui(new Request(HERE, { headers: given }));
  t.is(await who(await ask(headers)), "ana@example.org, viewer");
  const groups = { "x-forwarded-groups": "staff,operators" };
  t.is(await who(await ask({ ...headers, ...groups })), "ana@example.org, operator");
  for (const wrong of [
    { "x-proxy-secret": "" },
    { "x-proxy-secret": "s3crets" },
    { "x-forwarded-email": "" },
  ])
    t.is((await ask({ ...headers, ...groups, ...wrong })).status, 401, JSON.stringify(wrong));
});

test.serial("a browser is asked for the password, and let in with it", async (t) => {
  process.env.ADMIN_PASSWORD = "pâss:word";
  const { ui } = await load("basic-auth.ts");
  const ask = (authorization: string) => ui(new Request(HERE, { headers: { authorization } }));
  const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
  t.is(await who(await ask(basic("ana:pâss:word"))), "ana, operator");
  for (const wrong of ["", "Basic", "Basic %%%", basic("ana:pass"), basic("eve:pâss:word"), "Bearer x"]) {
    const answer = await ask(wrong);
    t.deepEqual([answer.status, answer.headers.get("www-authenticate")?.slice(0, 5)], [401, "Basic"], wrong);
  }
});

/** The servers with a session of their own. */
const SESSIONS: Readonly<Record<string, () => Promise<Listener>>> = {
  Express: async () => (await load("express-session.ts")).app,
  Fastify: async () => ofFastify((await load("fastify-session.ts")).app),
};

for (const [name, host] of Object.entries(SESSIONS))
  test.serial(`${name}'s session signs in each request by its own, also beside others`, async (t) => {
    const ask = await asking(t, await host());
    const as = (cookie: string) => ask(`${BASE}/policies`, { headers: { cookie } });
    const [ana, eve, nobody] = await Promise.all([as("session=ana"), as("session=eve"), as("session=x")]);
    t.deepEqual([await who(ana), await who(eve)], ["ana, operator", "eve, viewer"]);
    t.deepEqual([nobody.status, nobody.headers.get("location")], [303, "/sign-in"]);
    await isDone(t, ask, `${name}, session`);
  });
