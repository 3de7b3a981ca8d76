import { addPolicyJob, fromPostgresJs } from "graphile-worker-dispatch-policy";
import postgres from "postgres";
import { sendWelcome } from "./policies.ts";

export async function signUp(connectionString: string, customer: string, last: () => void): Promise<void> {
  const sql = postgres(connectionString);
  try {
    await sql.begin(async (tx) => {
      await tx`insert into sign_ups (customer) values (${customer})`;
      await addPolicyJob(fromPostgresJs(tx), sendWelcome, { customer });
      last();
    });
  } finally {
    await sql.end();
  }
}
