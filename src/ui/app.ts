import { createHash } from "node:crypto";
import { type Context, Hono } from "hono";
import { check, type Rule } from "../checks/options.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";
import { assets } from "./assets.ts";
import type { UiOptions, Viewer } from "./create-ui.ts";
import type { Database } from "./database.ts";
import { ACTION_PAGES, actOn } from "./pages/action.ts";
import { type Found, PAGES, type Rights, type Visit } from "./pages/pages.ts";
import { layout } from "./parts/layout.ts";
import { html } from "./parts/markup.ts";
import { comesFromOurPages } from "./same-origin.ts";
import { makeSnapshots } from "./snapshots.ts";

export interface AppSettings {
  readonly database: Database;
  readonly authorize: UiOptions["authorize"];
  readonly publicOrigins: readonly string[];
  readonly showPayloads: boolean;
  /** Without a slash at its end. */
  readonly base: string;
}

/** A host's parser has read it. Without these words the form would look empty. */
const BODY_IS_USED =
  "The form's body was read before it came to these pages. Mount them before the body parser, or hand on what it read: " +
  "docs/mount-ui.md says how\n";

type Env = { Variables: { viewer: Viewer } };

const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "same-origin",
  "cache-control": "private, no-cache",
};

const aViewer: Rule = {
  expects:
    '{ name, role } with a name that is not empty and the role "viewer" or "operator", a Response or null',
  accepts(value) {
    const { name, role } = value as Partial<Record<"name" | "role", unknown>>;
    return typeof name === "string" && name.trim() !== "" && (role === "viewer" || role === "operator");
  },
};

/** Every request is first asked for its sender, and one that may change something for where it comes from. */
export function makeApp(settings: AppSettings): Hono<Env> {
  const app = new Hono<Env>({ strict: false }).basePath(settings.base || "/");
  app.use(async (c, next) => {
    for (const [name, value] of Object.entries(HEADERS)) c.header(name, value);
    const viewer = await settings.authorize(c.req.raw);
    if (viewer instanceof Response) return viewer;
    if (!viewer) return c.text("Sign in first\n", 401); // without types, a look-up may give undefined
    check("createUi: what authorize returns", viewer, aViewer);
    c.set("viewer", { name: viewer.name, role: viewer.role });
    const { method } = c.req;
    if (method === "GET" || method === "HEAD") return next();
    if (viewer.role !== "operator") return c.text("A viewer changes nothing\n", 403);
    if (!comesFromOurPages(c.req.raw, settings.publicOrigins))
      return c.text("This request does not come from these pages\n", 403);
    return next();
  });
  for (const [name, asset] of Object.entries(assets()))
    app.get(`/assets/${name}`, async (c) => c.body(await asset.read(), 200, { "content-type": asset.type }));
  const snapshots = makeSnapshots();
  for (const [path, page] of Object.entries(PAGES))
    app.get(path, (c) => {
      const visit = visitOf(c, settings);
      const key = JSON.stringify([path, visit.rights, String(visit.query)]);
      return answer(c, settings, () => snapshots.get(key, oldestFor(c), () => page(visit)));
    });
  for (const [path, page] of Object.entries(ACTION_PAGES))
    app.get(path, (c) => answer(c, settings, () => page(visitOf(c, settings))));
  app.post("/act/:verb", async (c) => {
    if (c.req.raw.bodyUsed) return c.text(BODY_IS_USED, 500);
    return answer(c, settings, async () => {
      const form = new URLSearchParams(await c.req.text());
      const sent = { ...visitOf(c, settings), by: c.get("viewer").name, form };
      return actOn(c.req.param("verb"))(sent).finally(snapshots.clear);
    });
  });
  app.notFound((c) => answer(c, settings, async () => null));
  return app;
}

function visitOf(c: Context<Env>, { base, database, showPayloads }: AppSettings): Visit {
  const { name: _, ...rights } = c.get("viewer");
  return { ...database, base, rights, showPayloads, query: new URL(c.req.url).searchParams };
}

/** How old a page may be, in seconds, if it is asked for again. Who opens it gets it new. */
function oldestFor(c: Context<Env>): number {
  return Number(/\bmax-age=(\d+)/.exec(c.req.header("cache-control") ?? "")?.[1] ?? 0);
}

/** A page, or a page that says what is wrong. */
async function answer(c: Context<Env>, { base }: AppSettings, make: () => Promise<Found>): Promise<Response> {
  const viewer = c.get("viewer");
  const { pathname } = new URL(c.req.url);
  const { status, title, body } = await make().then(
    (found) => (found ? { status: 200 as const, ...found } : notFound()),
    (error: Error) => failed(error, viewer),
  );
  const text = String(await layout({ base, viewer, title, body, path: pathname.slice(base.length) || "/" }));
  const tag = `"${createHash("sha256").update(text).digest("base64url").slice(0, 27)}"`;
  if (status === 200 && c.req.header("if-none-match") === tag) return c.body(null, 304, { etag: tag });
  return c.html(text, status, status === 200 ? { etag: tag } : {});
}

function notFound() {
  return {
    status: 404 as const,
    title: "Nothing here",
    body: html`<p>There is no such page, policy or job.</p>`,
  };
}

/**
 * An argument that the sender gave is theirs to correct, also if PostgreSQL found it (class 22). Anything else is not. Its
 * text may name roles, tables and servers, which are no business of a viewer.
 */
function failed(error: Error & { code?: unknown }, { role }: Rights) {
  const isTheirs =
    error instanceof ArgumentError ||
    error instanceof UnknownPolicyError ||
    /^22...$/.test(String(error.code));
  const isShown = isTheirs || role === "operator";
  return {
    status: isTheirs ? (400 as const) : (503 as const),
    title: isTheirs ? "That does not work" : "This page cannot be made now",
    body: html`<p class="bad">${
      isShown
        ? error.message
        : "The database is away, or it refused. Load the page again later, or ask an operator: they see the cause here."
    }</p>`,
  };
}
