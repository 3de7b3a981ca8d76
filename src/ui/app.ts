import { createHash } from "node:crypto";
import { type Context, Hono } from "hono";
import { check } from "../checks/options.ts";
import { assets } from "./assets.ts";
import type { Tenant, UiOptions, Viewer } from "./create-ui.ts";
import type { Database } from "./database.ts";
import { ACTION_PAGES, ACTS } from "./pages/action.ts";
import { BULK_ACTS, BULK_PAGES } from "./pages/bulk.ts";
import { noticeFor } from "./pages/notice.ts";
import { type Found, PAGES, type Page, type Visit } from "./pages/pages.ts";
import { ownOf } from "./pages/tenant/own.ts";
import { TENANT_PAGES } from "./pages/tenant/pages.ts";
import { TICKED_ACTS, TICKED_PAGES } from "./pages/ticked.ts";
import { layout } from "./parts/layout.ts";
import { html } from "./parts/markup.ts";
import { makeReplays } from "./replays.ts";
import { comesFromOurPages, hostOf, isOurHost } from "./same-origin.ts";
import { isSendersError } from "./senders-error.ts";
import { makeSnapshots, type Snapshots } from "./snapshots.ts";
import type { TraceUrl } from "./trace-url.ts";
import { aViewer } from "./viewer.ts";

export interface AppSettings {
  readonly database: Database;
  readonly authorize: UiOptions["authorize"];
  readonly environment: string | undefined;
  readonly publicOrigins: readonly string[];
  readonly showPayloads: boolean;
  readonly traceUrl: TraceUrl | undefined;
  /** Without a slash at its end. */
  readonly base: string;
}

/** A host's parser has read it. Without these words the form would look empty. */
const BODY_IS_USED =
  "The form's body was read before it came to these pages. Mount them before the body parser, or pass on what it read: " +
  "docs/ui.md#a-body-that-was-read-before says how\n";

/** A form of somebody who changes nothing, say because they have another role since they opened its page. */
const REFUSED = {
  status: 403,
  title: "Not done",
  body: html`<p class="bad">Only an operator changes something here, and you are none.</p>`,
} as const;

const STRANGE = {
  status: 403,
  title: "Not done",
  body: html`<p class="bad">This request does not come from these pages, so nothing has changed. If it does, a proxy has changed its Host: name the origin that your browser shows in publicOrigins of createUi.</p>`,
} as const;

type Env = { Variables: { viewer: Viewer } };

export const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "same-origin",
  "cache-control": "private, no-cache",
};

/** Whether a request may come under its name for the host. Without `publicOrigins` all may, and that is said once. */
function makeHostCheck(publicOrigins: readonly string[]): (host: string) => boolean {
  let isSaid = false;
  return (host) => {
    if (isOurHost(host, publicOrigins)) return true;
    if (publicOrigins.length > 0) return false;
    if (!isSaid)
      process.emitWarning(
        `The admin pages are open under the name ${JSON.stringify(host)}, and under any other: a site could lead its visitors' ` +
          "browsers to them under a name of its own. Name the origin that your browser shows in publicOrigins of createUi",
        { code: "DISPATCH_POLICY_HOST" },
      );
    isSaid = true;
    return true;
  };
}

const STRANGE_HOST =
  "These pages are not meant to be reached under this name. If they are, its origin is missing in publicOrigins of createUi\n";

/** Every request is first asked for its sender, and one that may change something for where it comes from. */
export function makeApp(settings: AppSettings): Hono<Env> {
  const app = new Hono<Env>({ strict: false }).basePath(settings.base || "/");
  const mayBeCalled = makeHostCheck(settings.publicOrigins);
  app.use(async (c, next) => {
    for (const [name, value] of Object.entries(HEADERS)) c.header(name, value);
    if (!mayBeCalled(hostOf(c.req.raw))) return c.text(STRANGE_HOST, 421);
    const viewer = await settings.authorize(c.req.raw);
    if (viewer instanceof Response) return viewer;
    if (!viewer) return c.text("Sign in first\n", 401); // without types, a look-up may give undefined
    check("createUi: what authorize returns", viewer, aViewer);
    const { name, role } = viewer; // as it is now: the host may change what it gave
    const { partitions, where } = viewer;
    c.set("viewer", role === "tenant" ? { name, role, partitions, where } : { name, role });
    const { method } = c.req;
    if (method === "GET" || method === "HEAD") return next();
    if (role !== "operator") return answer(c, settings, async () => REFUSED);
    if (!comesFromOurPages(c.req.raw, settings.publicOrigins))
      return answer(c, settings, async () => STRANGE);
    return next();
  });
  for (const [name, { type, text, hash }] of Object.entries(assets()))
    app.get(`/assets/${name}`, (c) => {
      if (c.req.query("v") === hash) c.header("cache-control", "private, max-age=31536000, immutable");
      return c.body(text, 200, { "content-type": type });
    });
  const snapshots = makeSnapshots();
  // before all pages: a tenant reaches none of those below
  app.use(async (c, next) => {
    const viewer = c.get("viewer");
    return viewer.role === "tenant" ? answerTenant(c, settings, viewer, snapshots) : next();
  });
  for (const [path, page] of Object.entries(PAGES))
    app.get(path, (c) => {
      const visit = visitOf(c, settings);
      const key = JSON.stringify([path, visit.rights, String(visit.query)]);
      return answer(c, settings, () => snapshots.get(key, oldestFor(c), () => withNotice(page, visit)));
    });
  for (const [path, page] of Object.entries({ ...ACTION_PAGES, ...BULK_PAGES, ...TICKED_PAGES }))
    app.get(path, (c) => answer(c, settings, () => page(visitOf(c, settings))));
  const replays = makeReplays();
  for (const [path, act] of Object.entries({ ...ACTS, ...BULK_ACTS, ...TICKED_ACTS }))
    app.post(path, async (c) => {
      if (c.req.raw.bodyUsed) return c.text(BODY_IS_USED, 500);
      return answer(c, settings, async () => {
        const form = new URLSearchParams(await c.req.text());
        const sent = { ...visitOf(c, settings), replays, by: c.get("viewer").name, form };
        return act(sent).finally(snapshots.clear);
      });
    });
  app.notFound((c) => answer(c, settings, async () => null));
  return app;
}

/** A page, and above it what the form has done that led to it. What it acted on may be gone. */
async function withNotice(page: Page, visit: Visit): Promise<Found> {
  const found = await page(visit);
  const notice = visit.query.has("did") ? await noticeFor(visit) : undefined;
  if (!notice || (found && "seeOther" in found)) return found;
  const { title, body, ...rest } = found ?? GONE;
  return { ...rest, title, body: html`${notice}${body}` };
}

const GONE = { title: "No jobs", body: html`<p>No job of it waits or runs now.</p>` };

/** A page for a tenant. Of what was not made for them, it does not say whether it is there. */
async function answerTenant(
  c: Context<Env>,
  settings: AppSettings,
  tenant: Tenant,
  snapshots: Snapshots,
): Promise<Response> {
  const path = pathOf(c, settings);
  const query = new URL(c.req.url).searchParams;
  const { base, database } = settings;
  return answer(c, settings, async () => {
    const page = TENANT_PAGES.get(path);
    if (!page) return null;
    const { partitions, where } = tenant;
    const key = JSON.stringify([path, "tenant", partitions, where, String(query)]);
    const { looking } = database;
    return snapshots.get(key, oldestFor(c), async () => page({ looking, base, own: ownOf(tenant), query }));
  });
}

/** Below the pages' own, without a slash at its end. */
function pathOf(c: Context<Env>, { base }: AppSettings): string {
  return new URL(c.req.url).pathname.slice(base.length).replace(/\/+$/, "") || "/";
}

function visitOf(c: Context<Env>, { base, database, showPayloads, traceUrl }: AppSettings): Visit {
  const { role } = c.get("viewer");
  if (role === "tenant") throw new Error("a tenant has come to a page that shows all"); // none does: see above
  return {
    ...database,
    base,
    rights: { role },
    showPayloads,
    traceUrl,
    query: new URL(c.req.url).searchParams,
  };
}

/** How old a page may be, in seconds, if it is asked for again. Who opens it gets it new. */
function oldestFor(c: Context<Env>): number {
  return Number(/\bmax-age=(\d+)/.exec(c.req.header("cache-control") ?? "")?.[1] ?? 0);
}

/** A page, or a page that says what is wrong. */
async function answer(c: Context<Env>, settings: AppSettings, make: () => Promise<Found>): Promise<Response> {
  const viewer = c.get("viewer");
  const path = pathOf(c, settings);
  const found = await make().catch((error: Error) => failed(error, viewer));
  if (found !== null && "seeOther" in found) return c.redirect(found.seeOther, 303);
  const { status, ...page } = found === null ? notFound() : { status: 200 as const, ...found };
  const isLive = c.req.method !== "POST";
  const { base, environment } = settings;
  const text = String(await layout({ base, environment, viewer, path, isLive, ...page }));
  const tag = `"${createHash("sha256").update(text).digest("base64url").slice(0, 27)}"`;
  if (status === 200 && c.req.header("if-none-match") === tag) return c.body(null, 304, { etag: tag });
  return c.html(text, status, status === 200 ? { etag: tag } : {});
}

function notFound() {
  return {
    status: 404 as const,
    title: "Nothing here",
    body: html`<p>There is no such page, policy, partition or job. A job that has ended is gone, unless its policy keeps a history.</p>`,
  };
}

/**
 * What the sender cannot correct is not said to all. Its text may name roles, tables and servers, which are no business of a
 * viewer. A tenant sees no error at all: one of an unknown policy lists those of others.
 */
function failed(error: Error, { role }: Viewer) {
  const isTheirs = isSendersError(error);
  const isShown = role === "operator" || (isTheirs && role === "viewer");
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
