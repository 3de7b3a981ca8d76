/** What `--ui` serves: the page of the ten jobs at `/`, and the admin pages of their database. */
import { once } from "node:events";
import http from "node:http";
import { type Context, Hono } from "hono";
import pg from "pg";
import { listen } from "../../scripts/listen.ts";
import { makePolicyUtils } from "../../src/index.ts";
import { HEADERS } from "../../src/ui/app.ts";
import { comesFromOurPages, hostOf, isOurHost } from "../../src/ui/same-origin.ts";
import { createUi, toNodeHandler } from "../../src/ui/ui.ts";
import { start, stop } from "./children.ts";
import { withDatabase } from "./database.ts";
import { JOBS } from "./jobs.ts";
import { ADD, ADMIN, pageOf, YOU } from "./page.ts";
import {
  addSome,
  jobNamed,
  makeStorms,
  readAsked,
  type Storms,
  sharesOf,
  unknownJob,
} from "./tenant-storm.ts";

/** Ends with the signal. `port` is of this machine only; 0: any that is free. */
export function serveJobs(port: number, signal: AbortSignal): Promise<void> {
  return withDatabase("ui", async (url) => {
    // it makes the schemas, for which two workers would wait for one another
    const utils = await makePolicyUtils({
      connectionString: url,
      policies: JOBS.map(({ policy }) => policy),
    });
    await utils.release();
    const workers = await Promise.all([1, 2].map(() => start("./worker.ts", ["jobs", url])));
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    pool.on("error", console.error);
    const storms = makeStorms(pool);
    const app = makeApp(pool, storms);
    const server = http.createServer(toNodeHandler(async (request) => app.fetch(request)));
    try {
      const origin = await listen(server, port);
      console.log(`Ten jobs:    ${origin}/`);
      console.log(`Admin pages: ${origin}${ADMIN}/`);
      console.log("Ctrl-C ends it.");
      if (!signal.aborted) await once(signal, "abort");
    } finally {
      server.close();
      server.closeAllConnections();
      await storms.stop();
      await Promise.all(workers.map(([worker]) => stop(worker)));
      await pool.end();
    }
  });
}

function makeApp(pool: pg.Pool, storms: Storms): Hono {
  const app = new Hono();
  // only addresses of this machine: a site could make a name of its own lead here
  const ui = createUi({
    ...{ pool, basePath: ADMIN, environment: "demo", authorize: () => YOU },
    publicOrigins: ["http://127.0.0.1"],
  });
  const refuse = async (c: Context, status: 400 | 409, why: string, form: URLSearchParams) =>
    c.html(await pageOf(pool, { storm: storms.last(), refused: { why, form } }), status);
  const formOf = async (c: Context) => new URLSearchParams(await c.req.text());

  app.all(`${ADMIN}/*`, (c) => ui(c.req.raw));
  app.use(async (c, next) => {
    for (const [name, value] of Object.entries(HEADERS)) c.header(name, value);
    if (!isOurHost(hostOf(c.req.raw), [])) return c.text("Open this page by its address, 127.0.0.1\n", 421);
    if (c.req.method !== "GET" && !comesFromOurPages(c.req.raw, []))
      return c.text("This request does not come from this page, so nothing has changed\n", 403);
    return next();
  });
  app.get("/", async (c) => c.html(await pageOf(pool, { storm: storms.last() })));
  app.post("/add", async (c) => {
    const form = await formOf(c);
    const name = form.get("job") ?? "";
    const job = jobNamed(name);
    if (!job) return refuse(c, 400, unknownJob("job", name), form);
    await addSome(pool, job, ADD.jobs, sharesOf(ADD.tenants, job.skew ?? 0));
    return c.redirect(`/#${name}`, 303);
  });
  app.post("/storm", async (c) => {
    const form = await formOf(c);
    const asked = readAsked(form);
    if (typeof asked === "string") return refuse(c, 400, asked, form);
    if (!storms.start(asked)) return refuse(c, 409, "A storm runs. Stop it, or wait for its end.", form);
    return c.redirect("/#storm", 303);
  });
  app.post("/stop", async (c) => {
    await storms.stop();
    return c.redirect("/#storm", 303);
  });
  // whoever reads it runs the database as well
  app.onError((error, c) => c.text(`${error.message}\n`, 503));
  return app;
}
