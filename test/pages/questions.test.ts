// docs/operating.md, "What you see": the night of test/cli/world.ts, with a worker and what each question adds to it.
import test, { type ExecutionContext } from "ava";
import { POLICIES, world } from "../cli/world.ts";
import { beginsNow } from "../helpers/doctor.ts";
import { openChapter, type Place } from "../helpers/page.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT } from "../helpers/worker.ts";
import { age, allRun, fetches, waits, workerOn } from "./world.ts";

const page = openChapter("docs/operating.md", "What you see");
/** Sections without snippets need no night. */
const asked = page.sections.filter(({ blocks }) => blocks.length > 0);

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
    asked.map(({ title }) => title),
    Object.keys(NIGHTS),
  );
});

for (const section of asked)
  test.serial(`${section.title}: what the section shows is what is printed`, async (t) => {
    await page.run(t, section, await NIGHTS[section.title]!(t));
  });

test.after.always(() => page.write());
