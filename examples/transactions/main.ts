/** With each library, one transaction commits and another rolls back. DATABASE_URL names the database. */
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import pg from "pg";
import { sendWelcome } from "./policies.ts";
import * as drizzle from "./with-drizzle.ts";
import * as kysely from "./with-kysely.ts";
import * as withPg from "./with-pg.ts";
import * as postgresJs from "./with-postgres-js.ts";

const LIBRARIES = { pg: withPg, kysely, drizzle, "postgres.js": postgresJs };
const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const utils = await makePolicyUtils({ connectionString, policies: [sendWelcome] }); // creates both schemas
const app = new pg.Client({ connectionString });
await app.connect();
await app.query("create table if not exists sign_ups (customer text not null)");

const refuse = () => {
  throw new Error("the application has changed its mind");
};
for (const [name, { signUp }] of Object.entries(LIBRARIES)) {
  const [committed, rolledBack] = [`${name} 1`, `${name} 2`];
  await signUp(connectionString, committed, () => {});
  await signUp(connectionString, rolledBack, refuse).catch(() => {});
  console.log(`${name}: committed ${await found(committed)}; rolled back ${await found(rolledBack)}`);
}
await utils.release();
await app.end();

async function found(customer: string): Promise<string> {
  const { rows } = await app.query<{ sign_ups: number; jobs: number }>(
    `select (select count(*)::int from sign_ups where customer = $1) as sign_ups,
      (select count(*)::int from dispatch_policy.staged_jobs where partition = $1) as jobs`,
    [customer],
  );
  return `${rows[0]!.sign_ups} sign-up, ${rows[0]!.jobs} job`;
}
