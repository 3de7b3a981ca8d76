// A database at three in the morning: three policies, with partitions that are paused, on hold and full.
import type { ExecutionContext } from "ava";
import { definePolicy, makePolicyUtils } from "../../src/index.ts";
import { runCommand, runInTurn } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import type { Place } from "../helpers/worker.ts";

const fetchEndpoint = definePolicy("fetch_endpoint", {
  context: (payload) => payload as { account: string },
  partitionBy: "endpoint",
  gates: ({ throttle, concurrency }) => [
    throttle({ rate: 60, per: "1 minute" }),
    concurrency({ max: 2 }),
    concurrency({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
  ],
});
const sendMail = definePolicy("send_mail", {
  partitionBy: "to",
  gates: ({ throttle }) => [throttle({ name: "all", rate: 3, per: "1 hour", scope: "policy" })],
});
const makeReport = definePolicy("make_report", { partitionBy: "tenant" });
export const POLICIES = [fetchEndpoint, sendMail, makeReport];

export async function world(t: ExecutionContext) {
  const database = await lentDatabase(t);
  return { ...database, ...(await fill(database, t)) };
}

/** The same, where a process that serves all tests of the file runs the commands. */
export async function worldInTurn(t: ExecutionContext) {
  const it = await world(t);
  return { ...it, cli: (...args: readonly string[]) => runInTurn({ DATABASE_URL: it.url }, ...args) };
}

/** For all tests of a file, which has to end it. */
export async function sharedWorld() {
  const database = await testDatabase();
  return { ...database, ...(await fill(database)) };
}

async function fill({ url, pool }: Place, t?: ExecutionContext) {
  const utils = await makePolicyUtils({ pgPool: pool, policies: POLICIES, logger: silent });
  t?.teardown(() => utils.release());
  const fetches = (endpoint: string, account: string, count: number) =>
    utils.addJobs(
      Array.from({ length: count }, () => ({ identifier: "fetch_endpoint", payload: { endpoint, account } })),
    );
  const [first] = await fetches("ep1", "acme", 5);
  await fetches("ep2", "acme", 4);
  await fetches("ep3", "beta", 6);
  await fetches("ep4", "gamma", 3);
  for (const to of [
    "ana@example.org",
    "bo@example.org",
    "cy@example.org",
    "di@example.org",
    "ed@example.org",
  ])
    await utils.addJob("send_mail", { to });
  await utils.pause({ policy: "fetch_endpoint", partition: "ep3", reason: "incident 12", by: "ana" });
  const minute = 60_000;
  await utils.hold({
    policy: "fetch_endpoint",
    partition: "ep4",
    forMs: 30 * minute,
    reason: "429",
    by: "bo",
  });
  await utils.tick();
  return {
    utils,
    /** Of the first job of partition ep1, which is in flight. */
    first: first!.id,
    cli: (...args: readonly string[]) => runCommand(url, ...args),
  };
}
