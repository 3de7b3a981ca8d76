/** Makes what the application needs in its database, which DATABASE_URL names. It may run again. */
import { makePolicyUtils } from "graphile-worker-dispatch-policy";
import { sendWelcome } from "./policies.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const utils = await makePolicyUtils({ connectionString, policies: [sendWelcome] }); // creates both schemas
await utils.withPgClient((client) =>
  client.query("create table if not exists sign_ups (customer text primary key)"),
);
await utils.release();
