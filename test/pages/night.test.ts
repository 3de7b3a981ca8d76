// docs/operations-at-night.md: one session in one world, from the first look to the proof. A worker runs the jobs, and
// between the commands happens what the page says.
import test from "ava";
import { definePolicy, type PolicyUtils, RetryAfter } from "../../src/index.ts";
import { openPage } from "../helpers/page.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT } from "../helpers/worker.ts";
import { age, allRun, emptyWorld, fetchEndpoint, fetches, waits, workerOn } from "./world.ts";

const page = await openPage("docs/operations-at-night.md");

const one = { history: { keep: "1 day" } } as const;
const POLICIES = [
  fetchEndpoint({
    gates: ({ throttle, concurrency }) => [
      throttle({ rate: 60, per: "1 minute" }),
      concurrency({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
    ],
  }),
  definePolicy("call_partner", {
    ...{ ...one, partitionBy: "partner" },
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
  }),
  definePolicy("make_report", {
    ...{ ...one, partitionBy: "tenant", job: { maxAttempts: 1 } },
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
  }),
];

test("the session of the page is what is printed", async (t) => {
  const it = await emptyWorld(t, POLICIES);
  const { utils, pool } = it;
  const night = { isBroken: true, isRefused: true };
  await add(utils, "make_report", { tenant: "globex" }, 3);
  await utils.tick({ policy: "make_report" }); // the page asks for job 1; a worker's first pass leaves ids out
  await workerOn(t, it.database, POLICIES, {
    tasks: {
      call_partner: () => {
        if (night.isRefused) throw new RetryAfter("30 minutes", { reason: "429" });
      },
      make_report: () => {
        if (night.isBroken) throw new TypeError("report.rows is undefined");
      },
    },
    preset: NO_HEARTBEAT,
  });
  await has(utils, "make_report", { staged: 0, inFlight: 0 });
  await add(utils, "call_partner", { partner: "hooli" }, 4);
  await until("the partner is on hold", async () => (await utils.stops()).length === 1);
  await has(utils, "call_partner", { staged: 4, inFlight: 0 });
  await utils.addJobs(fetches("acme-orders", 9));
  await waits(utils, "acme-orders", "concurrency_full");
  await allRun(pool);
  await age(pool, 12);

  /** What happens before a block of a section. */
  const meanwhile: Readonly<Record<string, readonly (() => unknown)[]>> = {
    "More for acme, for an hour": [
      () => {},
      async () => {
        await has(utils, "fetch_endpoint", { staged: 3, inFlight: 6 });
        await waits(utils, "acme-orders", "concurrency_full");
        await allRun(pool);
      },
    ],
    "The partner that answers 429": [
      () => (night.isRefused = false),
      () => {},
      () => has(utils, "call_partner", { staged: 1, inFlight: 0 }),
    ],
    "What the deploy broke": [
      () => {},
      () => {},
      () => (night.isBroken = false),
      () => has(utils, "make_report", { staged: 0, inFlight: 0 }),
    ],
  };
  for (const section of page.sections)
    for (const [n, block] of section.blocks.entries()) {
      await meanwhile[section.title]?.[n]?.();
      await page.run(t, { ...section, blocks: [block] }, it, []);
    }
});

async function add(utils: PolicyUtils, identifier: string, payload: object, count: number): Promise<void> {
  await utils.addJobs(Array.from({ length: count }, () => ({ identifier, payload })));
}

/** Waits until so many jobs of a policy are staged and in flight. */
async function has(utils: PolicyUtils, policy: string, counts: { staged: number; inFlight: number }) {
  await until(
    `${policy}: ${JSON.stringify(counts)}`,
    async () => {
      const { staged, inFlight } = (await utils.status({ policy })).policies[0]!;
      return staged === counts.staged && inFlight === counts.inFlight;
    },
    { seen: async () => (await utils.status({ policy })).policies[0] },
  );
}

test.after.always(() => page.write());
