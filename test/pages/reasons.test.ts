// docs/operating.md, "Why does this job wait?": in a database where a job waits for the reason of a section, its snippets run.
import { readFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, adaptiveConcurrency, concurrency, type Reason, throttle } from "../../src/index.ts";
import { REASONS } from "../../src/policy/reasons.ts";
import { openChapter, type Place, textOfChapter } from "../helpers/page.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { age, allRun, emptyWorld, fetchEndpoint, fetches, waits, workerOn } from "./world.ts";

const HOUR = 3_600_000;
const PAGE = "docs/operating.md";
const CHAPTER = "Why does this job wait?";
const page = openChapter(PAGE, CHAPTER);
const text = textOfChapter(readFileSync(new URL(`../../${PAGE}`, import.meta.url), "utf8"), CHAPTER);
/** Its sections that are about no reason. */
const OTHERS = ["No reason", "When will it start?"];

/** What happens before the worker starts. The partition is ep1. */
type Arrange = (place: Place) => Promise<unknown>;

type WorkerOf = NonNullable<Parameters<typeof workerOn>[3]>;

/** A world with a worker, in which ep1 waits for the reason. */
function withWorker(policy: AnyPolicy, arrange: Arrange, options: WorkerOf & { minutes?: number } = {}) {
  return async (t: ExecutionContext, reason: Reason): Promise<Place> => {
    const world = await emptyWorld(t, [policy]);
    await arrange(world);
    await workerOn(t, world.database, [policy], options);
    await waits(world.utils, "ep1", reason);
    await allRun(world.pool);
    if (options.minutes) await age(world.pool, options.minutes);
    return world;
  };
}

/** A world in which nobody ticks but the test, once. */
function tickedOnce(policy: AnyPolicy, arrange: Arrange) {
  return async (t: ExecutionContext, reason: Reason): Promise<Place> => {
    const world = await emptyWorld(t, [policy]);
    await arrange(world);
    await world.utils.tick();
    await waits(world.utils, "ep1", reason, false);
    return world;
  };
}

const account = concurrency({ name: "account", scope: (ctx: { account: string }) => ctx.account, max: 3 });
const partner = { policy: "fetch_endpoint", partition: "ep1", by: "ana" };
const limit = { policy: "fetch_endpoint", by: "ana", reason: "partner is down" };

const WORLDS: Record<Reason, (t: ExecutionContext, reason: Reason) => Promise<Place>> = {
  throttle_empty: withWorker(
    fetchEndpoint({ gates: [throttle({ rate: 3, per: "1 hour" })] }),
    ({ utils }) => utils.addJobs(fetches("ep1", 5)),
    { tasks: { fetch_endpoint: () => {} } },
  ),
  rate_zero: withWorker(
    fetchEndpoint({ gates: [throttle({ rate: 3, per: "1 hour" })] }),
    async ({ utils }) => {
      await utils.setLimit({ ...limit, gate: "throttle", set: { rate: 0 } });
      await utils.addJobs(fetches("ep1", 1));
    },
  ),
  concurrency_full: withWorker(
    fetchEndpoint({ gates: [concurrency({ max: 2 }), account] }),
    async ({ utils }) => {
      await utils.addJobs(fetches("ep7", 2));
      await utils.addJobs(fetches("ep8", 1));
      await utils.tick();
      await utils.addJobs(fetches("ep1", 2));
    },
    { minutes: 12 },
  ),
  max_zero: withWorker(fetchEndpoint({ gates: [account] }), async ({ utils }) => {
    await utils.setLimit({ ...limit, gate: "account", key: "acme", set: { max: 0 } });
    await utils.addJobs(fetches("ep1", 1));
  }),
  cost_over_max: withWorker(
    fetchEndpoint({
      gates: [
        concurrency({ name: "account", max: (ctx: { account: string }) => ctx.account.length, cost: 5 }),
      ],
    }),
    ({ utils }) => utils.addJobs(fetches("ep1", 1)),
  ),
  adaptive_concurrency_full: withWorker(
    fetchEndpoint({ gates: [adaptiveConcurrency({ initialMax: 2, targetLagMs: 500 })] }),
    ({ utils }) => utils.addJobs(fetches("ep1", 3)),
  ),
  ahead_full: withWorker(fetchEndpoint({}), ({ utils }) => utils.addJobs(fetches("ep1", 4)), { slots: 2 }),
  tick_budget: tickedOnce(fetchEndpoint({ tickAdmissionBudget: 1 }), ({ utils }) =>
    utils.addJobs(fetches("ep1", 3)),
  ),
  batch: tickedOnce(fetchEndpoint({ admissionBatchSize: 1 }), ({ utils }) =>
    utils.addJobs(fetches("ep1", 3)),
  ),
  paused: withWorker(fetchEndpoint({ gates: [account] }), async ({ utils }) => {
    await utils.addJobs(fetches("ep1", 1));
    await utils.pause({ ...partner, reason: "incident 12" });
  }),
  held: withWorker(fetchEndpoint({ gates: [account] }), async ({ utils }) => {
    await utils.addJobs(fetches("ep1", 1));
    await utils.hold({ ...partner, forMs: HOUR / 2, reason: "429" });
  }),
  breaker_open: withWorker(
    fetchEndpoint({ gates: [account], breaker: { failures: 1, within: "1 minute", cooldown: "10 minutes" } }),
    ({ utils }) => utils.addJobs(fetches("ep1", 1)),
    { tasks: { fetch_endpoint: () => Promise.reject(new Error("the partner answers 502")) } },
  ),
  probing: withWorker(fetchEndpoint({ gates: [account] }), async ({ utils }) => {
    await utils.addJobs(fetches("ep1", 3));
    await utils.hold({ ...partner, forMs: 1, reason: "429" });
  }),
  strict_order: withWorker(
    fetchEndpoint({ gates: [account], order: "strict", backoff: () => "10 minutes" }),
    ({ utils }) => utils.addJobs(fetches("ep1", 3)),
    { tasks: { fetch_endpoint: () => Promise.reject(new Error("the partner answers 502")) } },
  ),
  not_due: withWorker(fetchEndpoint({ gates: [account] }), ({ utils }) =>
    utils.addJobs(fetches("ep1", 1, { runAt: new Date(Date.now() + 2 * HOUR) })),
  ),
  quarantined: withWorker(fetchEndpoint({ gates: [account] }), async ({ pool, utils }) => {
    await utils.addJobs(fetches("ep1", 1));
    await workerTable(pool).before(
      "insert",
      "if new.flags is not null then raise exception 'no room in the archive'; end if",
    );
  }),
  older_run: async (t, reason) => {
    const policy = fetchEndpoint({ whenRunning: "cancel" });
    const world = await emptyWorld(t, [policy]);
    const add = () =>
      world.utils.addJob("fetch_endpoint", { endpoint: "ep1", account: "acme" }, { jobKey: "ep1" });
    await add();
    await workerOn(t, world.database, [policy]);
    await until("it runs", async () => (await workerTable(world.pool).one())?.locked_at != null);
    await add();
    await waits(world.utils, "ep1", reason);
    return world;
  },
  waiting_key: async (t) => {
    const policy = fetchEndpoint({ gates: [account] });
    const world = await emptyWorld(t, [policy]);
    const payload = JSON.stringify({ endpoint: "ep1", account: "acme" });
    await world.pool.query("select dispatch_policy.add_job('fetch_endpoint', $1)", [payload]);
    return world;
  },
};

test("the page explains each reason that the code has, and no other", (t) => {
  const titles = page.sections.map(({ title }) => title).filter((title) => !OTHERS.includes(title));
  t.deepEqual(titles.toSorted(), [...REASONS].toSorted());
});

test("it says what each state without a reason means", (t) => {
  const source = readFileSync(new URL("../../src/operate/explain.ts", import.meta.url), "utf8");
  const [, union = ""] = /^ {2}state:\s+([^;]+);$/m.exec(source) ?? [];
  const states = [...union.matchAll(/"(\w+)"/g)].map(([, state]) => state);
  t.true(states.length > 5);
  const [, list = ""] = text.split(/^### No reason$/m);
  const listed = [...list.split(/^### /m, 1)[0]!.matchAll(/^- (`[^:]*):/gm)].map(([, names]) => names!);
  t.deepEqual(listed.flatMap((names) => names.replaceAll("`", "").split(", ")).toSorted(), states.toSorted());
});

for (const section of page.sections.filter(({ title }) => !OTHERS.includes(title)))
  test.serial(
    `${section.title}: a job waits for it, and what the section shows is what is printed`,
    async (t) => {
      const reason = section.title as Reason;
      await page.run(t, section, await WORLDS[reason](t, reason));
      t.pass();
    },
  );

test.after.always(() => page.write());
