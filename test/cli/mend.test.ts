// `explain` ends with a command. Each is run here as it stands, by a shell, and what waited no longer waits for that.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { MAIN } from "../helpers/command.ts";
import { table } from "../helpers/table.ts";
import { worldInTurn } from "./world.ts";

type World = Awaited<ReturnType<typeof worldInTurn>>;

const SHELL = `npx() { shift; ${JSON.stringify(process.execPath)} ${JSON.stringify(MAIN)} "$@"; }`;

/** Its last lines: what it says, and the command behind that. */
async function lastOf({ cli }: World, of: readonly string[]) {
  const { stdout } = await cli("explain", ...of);
  const last = stdout.trimEnd().split("\n").at(-1)!.trim();
  return { says: stdout.replace(/\s+/g, " "), command: last.startsWith("npx ") ? last : null };
}

const partition = (policy: string, key: string) => ["--policy", policy, "--partition", key];
const endpoint = (key: string) => ({ policy: "fetch_endpoint", partition: key });

const CAUSES: Record<
  string,
  {
    of: readonly string[];
    plant?: (world: World) => Promise<unknown>;
    says?: RegExp;
    command: RegExp;
    then: (t: ExecutionContext, world: World) => Promise<unknown>;
  }
> = {
  "its own slots are full": {
    of: partition("fetch_endpoint", "ep1"),
    // a pass each minute
    plant: async ({ utils, pool }) => {
      await utils.setLimit({ policy: "fetch_endpoint", gate: "account", set: { max: 9 } });
      await table(pool, "policies").set({ crontab_ticked_at: () => "now()" });
      await utils.tick();
    },
    says: /Nothing to do: it goes by itself, and nobody can tell when\. To let it go sooner:/,
    command: / set-limit --policy fetch_endpoint --gate concurrency --key ep1 --max 3 --until '1 hour'$/,
    then: async (t, { utils }) => {
      t.like(await utils.explain(endpoint("ep1")), { inFlight: 2 });
      await utils.tick();
      t.like(await utils.explain(endpoint("ep1")), { inFlight: 3 });
    },
  },
  "its slots are full, and nobody makes a pass": {
    of: partition("fetch_endpoint", "ep2"),
    says: /Start a worker that has its policy\. To let it go now:/,
    command: / admit --policy fetch_endpoint --partition ep2 --count 1 --yes$/,
    then: async (t, { utils }) => t.like(await utils.explain(endpoint("ep2")), { inFlight: 2 }),
  },
  "the partition is paused": {
    of: partition("fetch_endpoint", "ep3"),
    says: /To let it go:/,
    command: / resume --policy fetch_endpoint --partition ep3$/,
    then: async (t, { utils }) => t.like(await utils.explain(endpoint("ep3")), { reason: null }),
  },
  "the policy is paused": {
    of: partition("make_report", 'it\'s "odd"'),
    plant: async ({ utils }) => {
      await utils.addJob("make_report", { tenant: 'it\'s "odd"' });
      await utils.pause({ policy: "make_report" });
      await utils.tick();
    },
    command: / resume --policy make_report$/,
    then: async (t, { utils }) =>
      t.like(await utils.explain({ policy: "make_report", partition: 'it\'s "odd"' }), { reason: null }),
  },
  "the partition is on hold": {
    of: partition("fetch_endpoint", "ep4"),
    command: / resume --policy fetch_endpoint --partition ep4$/,
    then: async (t, { utils }) => t.like(await utils.explain(endpoint("ep4")), { reason: null }),
  },
  "there are no tokens": {
    of: partition("send_mail", "di@example.org"),
    command: / admit --policy send_mail --partition di@example\.org --count 1 --yes$/,
    then: async (t, { utils }) =>
      t.like(await utils.explain({ policy: "send_mail", partition: "di@example.org" }), { inFlight: 1 }),
  },
  "a rate of 0 for every key": {
    of: partition("fetch_endpoint", "ep3"),
    plant: async ({ utils }) => {
      await utils.resume(endpoint("ep3"));
      await utils.setLimit({ policy: "fetch_endpoint", gate: "throttle", set: { rate: 0 } });
    },
    says: /Start a worker that has its policy\. To let it go now:/,
    command: / clear-limit --policy fetch_endpoint --gate throttle$/,
    then: async (t, { utils }) => t.deepEqual(await utils.limits(), []),
  },
  "the hold of a key": {
    of: partition("fetch_endpoint", "ep4"),
    plant: async ({ utils }) => {
      await utils.resume(endpoint("ep4"));
      await utils.hold({ policy: "fetch_endpoint", gate: "account", key: "gamma", forMs: 3_600_000 });
    },
    command: / clear-limit --policy fetch_endpoint --gate account --key gamma$/,
    then: async (t, { utils }) => t.deepEqual(await utils.limits(), []),
  },
  "a limit of 0 by context": {
    of: partition("fetch_endpoint", "ep4"),
    plant: async ({ utils }) => {
      await utils.resume(endpoint("ep4"));
      const where = { account: "gamma" };
      await utils.setLimit({ policy: "fetch_endpoint", gate: "concurrency", where, set: { max: 0 } });
    },
    command: / clear-limit --policy fetch_endpoint --gate concurrency --where 'account=gamma'$/,
    then: async (t, { utils }) => t.deepEqual(await utils.limits(), []),
  },
  "it is not due": {
    of: partition("make_report", "later"),
    plant: async ({ utils }) => {
      await utils.addJob("make_report", { tenant: "later" }, { runAt: new Date(Date.now() + 3_600_000) });
      await utils.tick();
    },
    command: / reschedule-jobs \d+ --run-at '0 seconds'$/,
    then: async (t, { utils }) => {
      t.not((await utils.explain({ policy: "make_report", partition: "later" })).reason, "not_due");
    },
  },
  "nobody makes a pass": {
    of: partition("make_report", "new"),
    plant: ({ utils }) => utils.addJob("make_report", { tenant: "new" }),
    says: /Start a worker that has its policy\. To let it go now:/,
    command: / tick --policy make_report$/,
    then: async (t, { utils }) =>
      t.like(await utils.explain({ policy: "make_report", partition: "new" }), { inFlight: 1 }),
  },
  "it has failed for good": {
    of: ["1"],
    plant: ({ utils }) => utils.permanentlyFailJobs(["1"], "answer 502"),
    says: /To bring it back:/,
    command: / retry 1$/,
    then: async (t, { utils, first }) => t.like(await utils.explain({ id: first }), { state: "parked" }),
  },
};

for (const [cause, { of, plant, says, command, then }] of Object.entries(CAUSES))
  test.serial(`the last line lets it go: ${cause}`, async (t) => {
    const world = await worldInTurn(t);
    await plant?.(world);
    const last = await lastOf(world, of);
    t.regex(last.command ?? last.says, command);
    if (says) t.regex(last.says, says);
    const env = { ...process.env, NODE_NO_WARNINGS: "1", DATABASE_URL: world.url };
    const ran = await promisify(execFile)("sh", ["-c", `${SHELL}; ${last.command}`], { env });
    t.log(ran.stdout);
    await then(t, world);
  });

test.serial("a job that others go before: the command lets one go, and says so", async (t) => {
  const world = await worldInTurn(t);
  const [, last] = await world.utils.addJobs(
    [1, 2].map(() => ({ identifier: "send_mail", payload: { to: "di@example.org" } })),
  );
  await world.utils.tick();
  const { says, command } = await lastOf(world, [last!.id]);
  t.regex(says, /To let the next job of its partition go now:/);
  t.regex(command!, /--count 1 --yes$/);
});

test.serial(
  "what goes by itself needs nothing, and there is no command for what does not wait",
  async (t) => {
    const world = await worldInTurn(t);
    await table(world.pool, "policies").set({ crontab_ticked_at: () => "now()" });
    const sooner = await lastOf(world, partition("fetch_endpoint", "ep4"));
    t.regex(sooner.says, /Nothing to do: it goes by itself in .*To let it go sooner:/);
    const running = await lastOf(world, [world.first]);
    t.is(running.command, null);
    t.notRegex(running.says, /Nothing to do|To let/);
  },
);
