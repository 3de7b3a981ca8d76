/**
 * Mounts the admin pages in three servers, and asks each for them before and after signing in. DATABASE_URL names the
 * database. With `--serve` they go on, so that a browser can ask as well.
 */
import { definePolicy, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { createUi } from "graphile-worker-dispatch-policy/ui";
import pg from "pg";
import { BASE, makeSignIn } from "./sign-in.ts";
import { listen as express } from "./with-express.ts";
import { listen as fastify } from "./with-fastify.ts";
import { listen as node } from "./with-node.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const password = process.env.ADMIN_PASSWORD ?? "correct horse";
const policies = [definePolicy("send_mail", { partitionBy: "customer" })];
const utils = await makePolicyUtils({ connectionString, policies }); // creates both schemas
await utils.addJob("send_mail", { customer: "ana" });
await utils.release();

const pool = new pg.Pool({ connectionString, max: 4 });
pool.on("error", console.error);
const signIn = makeSignIn(password);
const ui = createUi({ pool, basePath: BASE, authorize: signIn.authorize });
for (const [name, listen] of Object.entries({ node, express, fastify })) {
  const { origin, close } = await listen({ ui, signIn });
  const ask = (path: string, init: RequestInit = {}) => fetch(origin + path, { redirect: "manual", ...init });
  const stranger = await ask(`${BASE}/`);
  console.log(`${name}: a stranger gets ${stranger.status}, to ${stranger.headers.get("location")}`);
  const signedIn = await ask("/sign-in", { method: "POST", body: new URLSearchParams({ password }) });
  const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
  const page = await ask(`${BASE}/`, { headers: { cookie } });
  const isThere = (await page.text()).includes("send_mail");
  console.log(
    `${name}: who is signed in gets ${page.status}, ${isThere ? "with" : "without"} the policy send_mail`,
  );
  if (process.argv.includes("--serve")) console.log(`${origin}/sign-in`);
  else await close();
}
if (!process.argv.includes("--serve")) await pool.end();
