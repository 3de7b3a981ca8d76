// docs/questions.md: the night of test/cli/world.ts, with a worker and what each question adds to it.
import test, { type ExecutionContext } from "ava";
import { makeEngine } from "../../src/db/engine.ts";
import { POLICIES, world } from "../cli/world.ts";
import { beginsNow } from "../helpers/doctor.ts";
import { openPage, type Place } from "../helpers/page.ts";
import { table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT } from "../helpers/worker.ts";
import { age, allRun, fetches, waits, workerOn } from "./world.ts";

const page = await openPage("docs/questions.md");
const snippets = await page.load();

type Arrange = (place: Place) => Promise<unknown>;
type Night = (t: ExecutionContext) => Promise<Place>;

const nothing: Arrange = async () => {};

/** The night, with a worker whose fetches hang. */
function night({ before = nothing, after = nothing }: { before?: Arrange; after?: Arrange } = {}): Night {
  return async (t) => {
    const place = await world(t);
    await before(place);
    const tasks = { send_mail: () => {}, make_report: () => {} };
    await workerOn(t, place, POLICIES, { tasks, preset: NO_HEARTBEAT });
    await waits(place.utils, "ep2", "concurrency_full");
    await allRun(place.pool);
    await after(place);
    await beginsNow(place.pool);
    return place;
  };
}

const NIGHTS: Readonly<Record<string, Night>> = {
  "What is the state?": night(),
  "Customer X waits: why, and until when?": night({ after: ({ pool }) => age(pool, 12) }),
  "A partner answers 429": night(),
  "A deploy changed a limit": night({
    before: ({ utils }) =>
      utils.setLimit({
        ...{ policy: "fetch_endpoint", gate: "account", key: "acme", set: { max: 2 } },
        ...{ reason: "invoice 7", by: "ana" },
      }),
  }),
  "Bring back yesterday's failures": night({
    before: ({ utils }) => utils.permanentlyFailJobs(["1", "2"], "answer 502"),
  }),
  "A worker died": night({
    after: async ({ pool, utils }) => {
      const dead = {
        id: "pool-fffffffffffffffffe",
        slots: 10,
        tasks: ["fetch_endpoint"],
        host: "host1",
        pid: 42,
      };
      const bid = { policies: [], shards: null, ttlMs: 1000, bids: false };
      await utils.withPgClient((client) =>
        makeEngine("dispatch_policy").beat(client, { ...dead, staleAfterMs: 1, clockBehindMs: 0 }, bid),
      );
      await workerTable(pool).set({ locked_by: dead.id }, { id: 3 });
      const earlier = { heartbeat_at: (its: string) => `${its} - interval '70 seconds'` };
      await table(pool, "workers").set(earlier, { pool_id: dead.id });
      await until("it is silent", async () => (await utils.status()).workers.some(({ alive }) => !alive));
    },
  }),
  "Nothing runs at all": async (t) => {
    const place = await world(t);
    await place.utils.pause({ all: true, reason: "incident 12", by: "ana" });
    // a doctor believes for five minutes that a host without worker pools may run the jobs
    await table(place.pool, "limiters").set({ sampled_at: "-infinity" });
    await beginsNow(place.pool);
    return place;
  },
  "Stop everything at once": night(),
  "Take a tenant out of service, and back": night(),
  "A tenant has another name": night(),
  "Change a limit for tonight, and prove afterwards who did it": night(),
  "One tenant floods": night({
    after: async ({ utils }) => {
      await utils.addJobs(fetches("ep9", 200));
      await until("a pass has looked at it", async () => {
        const [it] = await utils.partitions({ policy: "fetch_endpoint", search: "ep9" });
        return it?.reason === "concurrency_full";
      });
    },
  }),
  "The backlog grows: add workers or raise limits?": night(),
  "Which jobs hang?": night({
    after: async ({ pool }) => {
      await age(pool, 3);
      await age(pool, 44, "1");
    },
  }),
};

test("each question of the page is asked in a night of its own", (t) => {
  t.deepEqual(
    page.sections.map(({ title }) => title),
    Object.keys(NIGHTS),
  );
  const listed = [...page.text.matchAll(/^- \[(.*)\]\(#(.*)\)$/gm)].map(([, title, anchor]) => [
    title,
    anchor,
  ]);
  t.deepEqual(
    listed,
    page.sections.map(({ title }) => [
      title,
      title
        .toLowerCase()
        .replace(/[^\w -]/g, "")
        .replaceAll(" ", "-"),
    ]),
  );
});

for (const section of page.sections)
  test.serial(`${section.title}: what the section shows is what is printed`, async (t) => {
    t.true(section.blocks.length > 0);
    await page.run(t, section, await NIGHTS[section.title]!(t), snippets);
  });

test.after.always(() => page.write());
