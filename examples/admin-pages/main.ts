/**
 * Mounts the admin pages, and asks for them before and after signing in. DATABASE_URL names the database. With `--serve` it
 * goes on, so that a browser can ask as well.
 */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { definePolicy, makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { makeServer } from "./server.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const password = process.env.ADMIN_PASSWORD ?? "correct horse";
const policies = [definePolicy("send_mail", { partitionBy: "customer" })];
const utils = await makePolicyUtils({ connectionString, policies }); // creates both schemas
await utils.addJob("send_mail", { customer: "ana" });
await utils.release();

const pool = new pg.Pool({ connectionString, max: 4 });
const server = makeServer({ pool, password }).listen(0, "127.0.0.1");
await once(server, "listening");
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const ask = (path: string, init: RequestInit = {}) => fetch(origin + path, { redirect: "manual", ...init });

const stranger = await ask("/admin/jobs/");
console.log(`a stranger gets ${stranger.status}, to ${stranger.headers.get("location")}`);
const signedIn = await ask("/sign-in", { method: "POST", body: new URLSearchParams({ password }) });
const cookie = signedIn.headers.get("set-cookie")?.split(";")[0] ?? "";
const page = await ask("/admin/jobs/", { headers: { cookie } });
const isThere = (await page.text()).includes("send_mail");
console.log(`who is signed in gets ${page.status}, ${isThere ? "with" : "without"} the policy send_mail`);

if (process.argv.includes("--serve")) console.log(`${origin}/sign-in`);
else {
  server.close();
  server.closeAllConnections();
  await pool.end();
}
