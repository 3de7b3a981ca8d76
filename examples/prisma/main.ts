/** One transaction of Prisma commits, and another rolls back. DATABASE_URL names the database. */
import { PrismaPg } from "@prisma/adapter-pg";
import { addPolicyJob, fromPrisma, makePolicyUtils } from "graphile-worker-dispatch-policy";
import { PrismaClient } from "./generated/client.ts";
import { sendWelcome } from "./policies.ts";

const connectionString = process.env.DATABASE_URL ?? "postgres:///app";
const utils = await makePolicyUtils({ connectionString, policies: [sendWelcome] }); // creates both schemas
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString }) });
await prisma.$executeRaw`create table if not exists sign_ups (customer text primary key)`;

await signUp("ana", () => {});
console.log(`committed ${await found("ana")}`);
await signUp("bo", () => {
  throw new Error("the application has changed its mind");
}).catch(() => {});
console.log(`rolled back ${await found("bo")}`);
await prisma.$disconnect();
await utils.release();

/** Signs a customer up, and adds the job that welcomes them: both, or neither if `last` throws. */
async function signUp(customer: string, last: () => void): Promise<void> {
  await prisma.$transaction(async (tx) => {
    await tx.signUp.create({ data: { customer } });
    await addPolicyJob(fromPrisma(tx), sendWelcome, { customer });
    last();
  });
}

async function found(customer: string): Promise<string> {
  const signUps = await prisma.signUp.count({ where: { customer } });
  const [row] = await prisma.$queryRaw<[{ jobs: number }]>`
    select count(*)::int as jobs from dispatch_policy.staged_jobs where partition = ${customer}`;
  return `${signUps} sign-up, ${row.jobs} job`;
}
