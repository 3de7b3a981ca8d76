/** Starts the application and signs a customer up twice. DATABASE_URL names the database. */
import { NestFactory } from "@nestjs/core";
import type { NestExpressApplication } from "@nestjs/platform-express";
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { sendWelcome } from "./policies.ts";
import { SignUpsModule } from "./sign-ups.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const utils = await makePolicyUtils({ connectionString, policies: [sendWelcome] }); // creates both schemas
await utils.release();
const db = new pg.Client({ connectionString });
await db.connect();
await db.query("create table if not exists sign_ups (customer text primary key)");

const app = await NestFactory.create<NestExpressApplication>(SignUpsModule, { logger: ["error", "warn"] });
await app.listen(0, "127.0.0.1");
for (const time of ["first", "second"]) {
  const response = await fetch(`${await app.getUrl()}/sign-ups`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ customer: "ana" }),
  });
  console.log(`ana signs up for the ${time} time: ${response.status}; ${await found("ana")}`);
}
await app.close();
await db.end();

async function found(customer: string): Promise<string> {
  const { rows } = await db.query<{ sign_ups: number; jobs: number }>(
    `select (select count(*)::int from sign_ups where customer = $1) as sign_ups,
      (select count(*)::int from dispatch_policy.staged_jobs where partition = $1) as jobs`,
    [customer],
  );
  return `${rows[0]!.sign_ups} sign-up, ${rows[0]!.jobs} job`;
}
