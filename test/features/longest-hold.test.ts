// A hold and a breaker stop a partition side by side: the longer one counts, and each keeps its end and its reason.
import test from "ava";
import { concurrency, definePolicy, RetryAfter } from "../../src/index.ts";
import { concurrency as cap, type Engine, engine } from "../helpers/engine.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const breaker = { failures: 2, withinSeconds: 60, cooldownSeconds: 60 };
const SWEEP = "select dispatch_policy_internal._sweep_clock(clock_timestamp())";

async function broken(it: Engine): Promise<void> {
  await it.release((await it.inFlight()).map((job) => ({ job, ok: false })));
  await it.route();
}

const stops = async (it: Engine) =>
  (
    await it.pool.query(
      `select kind, by, reason, round(extract(epoch from now() - since) / 60)::int as ago,
         round(extract(epoch from until - now()) / 60)::int as minutes
       from dispatch_policy.stops order by kind`,
    )
  ).rows;

test("a task asks for 20 minutes under a cooldown of one: no sweep ends that, and nobody is asked before", async (t) => {
  const policy = definePolicy("p", {
    partitionBy: "key",
    gates: [concurrency({ max: 5 })],
    breaker: { failures: 3, within: "1 minute", cooldown: "1 minute" },
  });
  let asked = 0;
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      p: async () => {
        asked++;
        throw new RetryAfter("20 minutes", { reason: "429" });
      },
    },
    worker: { concurrentJobs: 5 },
  });
  await worker.utils.addJobs(Array(20).fill({ identifier: "p", payload: { key: "k" } }));
  await until("the first were refused", () => asked > 0);
  await worker.everythingIsReleased();
  await worker.utils.tick();
  const first = asked;
  t.true(first <= 5, `${first} at once`);
  for (let sweep = 0; sweep < 3; sweep++) {
    await worker.utils.sweep();
    await worker.utils.tick();
  }
  t.is(asked, first);
  const { state, reason, stop, sentence } = await worker.utils.explain({ policy: "p", partition: "k" });
  t.deepEqual([state, reason, stop?.reason], ["waiting", "held", "429"]);
  t.regex(sentence, /The partition is on hold by job \d+ \(429\) until /);
  const minutes = (stop!.until!.getTime() - Date.now()) / 60_000;
  t.true(minutes > 19 && minutes < 20.1, `${minutes}`);
});

test("each keeps its end and its reason, and both are shown", async (t) => {
  const it = await engine(t, { gates: [cap(2)], breaker });
  await it.stage(Array(4).fill("a"));
  t.is(await it.passes(), 2);
  await it.pool.query(
    `select dispatch_policy.hold('p', 'a', "for" => '20 minutes', reason => '429', by => 'ana')`,
  );
  await broken(it);
  await it.pool.query(SWEEP);
  const both = [
    { kind: "breaker", by: "breaker", reason: "2 failures within 60 s", ago: 0, minutes: 1 },
    { kind: "hold", by: "ana", reason: "429", ago: 0, minutes: 20 },
  ];
  t.deepEqual(await stops(it), both);
  t.is(await it.passes(2), 0);
  const explained = async () =>
    (await it.pool.query("select dispatch_policy.explain(policy => 'p', partition => 'a') as it")).rows[0].it;
  const held = await explained();
  t.like(held, { reason: "held", stop: { by: "ana", reason: "429" } });
  t.like(held.stop.besides, { kind: "breaker", by: "breaker", reason: "2 failures within 60 s" });
  t.regex(
    held.sentence,
    /The partition is on hold by ana \(429\) until \S+\. Its breaker is open besides \(2 failures within 60 s\), until /,
  );
  const view =
    "select reason, stopped_by, stop_reason, breaker_reason, breaker_until < held_until as shorter from dispatch_policy.partitions";
  t.deepEqual((await it.pool.query(view)).rows, [
    {
      reason: "held",
      stopped_by: "ana",
      stop_reason: "429",
      breaker_reason: "2 failures within 60 s",
      shorter: true,
    },
  ]);
  await it.table("partitions").set({ held_until: () => "now() + interval '30 s'" });
  const open = await explained();
  t.is(open.reason, "breaker_open");
  t.like(open.stop, { by: "breaker", besides: { kind: "hold", by: "ana", reason: "429" } });
  t.regex(open.sentence, /kept failing, until \S+\. It is on hold besides by ana \(429\), until /);
  await it.pool.query("select dispatch_policy.resume('p', partition => 'a')");
  t.deepEqual(await stops(it), []);
  t.is(await it.passes(2), 2, "without a probe");
});

test("when the hold ends, the breaker still counts, and the other way round", async (t) => {
  for (const [longer, shorter] of [
    ["held_until", "breaker_until"],
    ["breaker_until", "held_until"],
  ]) {
    const it = await engine(t, { gates: [cap(2)], breaker });
    await it.stage(Array(4).fill("a"));
    t.is(await it.passes(), 2);
    await it.pool.query(`select dispatch_policy.hold('p', 'a', "for" => '1 minute')`);
    await broken(it);
    const end = (field: string) => it.table("partitions").set({ [field]: () => "clock_timestamp()" });
    await end(shorter!);
    t.is(await it.passes(2), 0, `${shorter} is over`);
    await end(longer!);
    t.is(await it.passes(2), 1, "the probe");
  }
});

test("of two holds the words of the longer one stay, also before a partition exists", async (t) => {
  const it = await engine(t, { gates: [cap(2)], breaker });
  const hold = (key: string, minutes: number) =>
    it.pool.query("select dispatch_policy.hold('p', $1, \"for\" => $2, reason => $3)", [
      key,
      `${minutes} minutes`,
      `${minutes}`,
    ]);
  const shown = async (key: string) =>
    (await it.pool.query("select stop_reason from dispatch_policy.partitions where partition = $1", [key]))
      .rows[0]?.stop_reason;
  await it.stage(["a"]);
  await it.route();
  for (const minutes of [20, 1]) await hold("a", minutes);
  t.is(await shown("a"), "20");
  await hold("a", 30);
  t.is(await shown("a"), "30");
  for (const minutes of [20, 1]) await hold("b", minutes);
  await it.stage(["b"]);
  await it.route();
  t.is(await shown("b"), "20");
});
