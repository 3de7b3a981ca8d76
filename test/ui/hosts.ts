// The servers of docs/ui.md, each as it stands there, over one database.
//
// Next.js is not installed here. A route handler of it is a function from a Request to a Response, and is called as such.
import { symlink, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { toNodeHandler } from "../../src/ui/ui.ts";
import { sharedWorld } from "../cli/world.ts";
import { blocksOf, readersProject, textOfPage, writeFiles } from "../helpers/readers-project.ts";

export const ROUTE = "app/admin/jobs/[[...path]]/route.ts";
export const BASE = "/admin/jobs";
const SESSION = `export const customerOf = async (_cookie: string | null) => ({ id: "acme", name: "Acme", endpoints: ["ep1"] });
const users = new Map([["ana", { name: "ana", isAdmin: true }], ["eve", { name: "eve", isAdmin: false }]]);
export const userOf = async (cookie: string | null) => users.get(cookie?.replace("session=", "") ?? "");
export const userIn = ({ headers }: { headers: { cookie?: string } }) => users.get(headers.cookie?.replace("session=", "") ?? "");
`;

// biome-ignore lint/suspicious/noExplicitAny: the modules of a page, and hosts whose types this file does not need
export type Any = any;

/** Of Node's http server. */
export type Listener = (request: IncomingMessage, response: ServerResponse) => unknown;

export async function hosts() {
  const ends: (() => Promise<unknown>)[] = [];
  const it = await sharedWorld();
  const project = await readersProject({ teardown: (end) => ends.push(end) }, [
    ...["express", "fastify", "koa", "hono"],
  ]);
  const blocks = await blocksOf("docs/ui.md");
  const files = await writeFiles(project, blocks);
  await writeFile(path.join(project, "session.ts"), SESSION);
  // no TypeScript file, because Express 4 has other types
  const express = blocks.find((one) => one.text.startsWith("// express.ts"))!;
  const four = fileURLToPath(import.meta.resolve("express4/package.json"));
  await symlink(path.dirname(four), path.join(project, "node_modules", "express4"));
  await writeFile(
    path.join(project, "express4.js"),
    express.text.replace('from "express"', 'from "express4"'),
  );
  // Fastify with a session: its file with the line that the page says
  const textOf = (name: string) => blocks.find(({ text }) => text.startsWith(`// ${name}\n`))!.text;
  const [, answer = ""] =
    /In Fastify the last line becomes `([^`]*)`/.exec(await textOfPage("docs/ui.md")) ?? [];
  await writeFile(
    path.join(project, "fastify-session.ts"),
    textOf("fastify.ts")
      .replace(/return pages\(.*/, answer)
      .replace('import { ui } from "./admin.ts";', 'import { userIn } from "./session.ts";')
      .replace("const pages = toNodeHandler(ui);", 'import { pages, signedIn } from "./session-pages.ts";'),
  );
  const load = async (file: string): Promise<Any> => import(path.join(project, file));
  const { DATABASE_URL } = process.env;
  process.env.DATABASE_URL = it.url;
  const { pool } = await load("admin.ts");
  process.env.DATABASE_URL = DATABASE_URL;
  ends.push(
    () => pool.end(),
    () => it.utils.release(),
    () => it.drop(),
  );
  return {
    files,
    load,
    utils: it.utils,
    /** What was done, the first first. */
    audited: async (): Promise<readonly Any[]> =>
      (await it.pool.query("select verb, partition, by, reason from dispatch_policy.audit order by id")).rows,
    async end() {
      for (const end of ends) await end();
    },
  };
}

export type Hosts = Awaited<ReturnType<typeof hosts>>;

/** The servers by their names. */
export const HOSTS: Readonly<Record<string, (it: Hosts) => Promise<Listener>>> = {
  async "node:http"({ load }) {
    const { app } = await load("node.ts");
    return (request, response) => app.emit("request", request, response);
  },
  "Express 4": async ({ load }) => (await load("express4.js")).app,
  "Express 5": async ({ load }) => (await load("express.ts")).app,
  Fastify: async ({ load }) => ofFastify((await load("fastify.ts")).app),
  Koa: async ({ load }) => (await load("koa.ts")).app.callback(),
  Hono: async ({ load }) => ofHono((await load("hono.ts")).app),
  "Next.js": async ({ load }) => ofNextJs(await load(ROUTE)),
};

export async function ofFastify(app: Any): Promise<Listener> {
  await app.ready();
  return (request, response) => app.routing(request, response);
}

/** Hono's own server for Node. */
export async function ofHono(app: Any): Promise<Listener> {
  // by a name that the compiler does not follow: its types need those of browsers
  const { getRequestListener }: Any = await import(import.meta.resolve("@hono/node-server"));
  return getRequestListener(app.fetch);
}

/** As Next.js calls the exports of a route: HEAD by GET, without what it would send. */
export function ofNextJs(route: Any): Listener {
  return toNodeHandler(async (request) => {
    const { method } = request;
    const params = Promise.resolve({ path: new URL(request.url).pathname.split("/").slice(3) });
    const answer: Response = await route[method === "HEAD" ? "GET" : method](request, { params });
    return method === "HEAD" ? new Response(null, answer) : answer;
  });
}
