// What a text leads to: which rows, in which order, and how far it looks.
import test, { type ExecutionContext } from "ava";
import { concurrency, Engine, engine } from "../helpers/engine.ts";
import { table, workerTable } from "../helpers/table.ts";

interface Hit {
  readonly kind: string;
  readonly policy: string | null;
  readonly partition: string | null;
  readonly job_id: string | null;
  readonly state: string | null;
  readonly matched: string | null;
  readonly note: string | null;
  readonly rank: number;
}

async function search({ pool }: Engine, query: string, max = 20): Promise<readonly Hit[]> {
  return (await pool.query<Hit>("select * from dispatch_policy.search($1, $2)", [query, max])).rows;
}

/** What was found, by its rank: "2 partition cust-06". */
const said = (hits: readonly Hit[]) => hits.map(({ rank, kind, matched }) => `${rank} ${kind} ${matched}`);

/** These rows and no others, as far as they are told. */
function are(t: ExecutionContext, hits: readonly Hit[], expected: readonly object[], why?: string) {
  t.is(hits.length, expected.length, `${why}: ${JSON.stringify(hits)}`);
  t.like(hits, expected as never, why);
}

const HOUR = new Date(Date.now() + 3_600_000);

test("a whole key goes first, then what differs in blanks or capitals, beginnings, contexts, and parts", async (t) => {
  const world = await engine(t, {
    gates: [concurrency(1)],
    contextOf: (key) => (key === "endpoint" ? { account: "cust-06", plan: "cust-06x" } : {}),
  });
  await world.stage(["cust-06", "cust-06 ", "CUST-06", "cust-0612", "cust-061", "old-cust-06", "endpoint"]);
  await world.stage("cust-07", { jobKey: "cust-06-night", runAt: HOUR });
  await world.stage("cust-07", { jobKey: "cust-06", runAt: HOUR });
  await world.route();
  const hits = await search(world, "cust-06");
  t.deepEqual(said(hits), [
    "2 partition cust-06",
    "3 job cust-06",
    "4 partition CUST-06",
    "4 partition cust-06 ",
    "5 partition cust-061",
    "5 partition cust-0612",
    "5 job cust-06-night",
    "6 partition account = cust-06",
    "7 partition old-cust-06",
  ]);
  t.deepEqual(
    hits.filter(({ note }) => note !== null).map(({ note }) => note),
    ["near match: capitals differ", "near match: blanks at its ends differ"],
  );
  t.like(hits[7], { policy: "p", partition: "endpoint", job_id: null, state: "waiting" });
  t.like(hits[1], { policy: "p", partition: "cust-07", state: "staged" });
  t.deepEqual(said(await search(world, " cust-061\n")), ["4 partition cust-061", "5 partition cust-0612"]);
  t.is((await search(world, "cust-06 "))[0]?.matched, "cust-06 ", "with its blank");
});

test("one character more, less or another, and two that are swapped, if there is nothing nearer", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["cust-06", "cust-77"]);
  await world.stage("cust-77", { jobKey: "order-1204" });
  await world.route();
  const note = "near match: one character differs";
  for (const query of ["cust-60", "cust06", "cust-006", "cust-16", "cusr-06", "ucst-06"])
    are(t, await search(world, query), [{ kind: "partition", matched: "cust-06", note, rank: 8 }], query);
  are(t, await search(world, "order-1240"), [{ kind: "job", matched: "order-1204", note }]);
  await world.stage("cust-60");
  await world.route();
  t.deepEqual(said(await search(world, "cust-60")), ["2 partition cust-60"], "that is no typing error");
  t.deepEqual(await search(world, "cu-60"), [], "two characters");
});

test("forms of Unicode, and blanks that nobody sees, count as the same", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [whole, parts] = ["zo\u00eb", "zoe\u0308"] as const;
  await world.stage([parts, "acme\u00a0", "\u200bbeta"]);
  await world.route();
  const kind = "partition";
  are(t, await search(world, whole), [
    { kind, matched: parts, note: "near match: it is encoded otherwise", rank: 4 },
  ]);
  are(t, await search(world, whole.toUpperCase().normalize("NFC")), [{ matched: parts, rank: 4 }]);
  const note = "near match: blanks at its ends differ";
  are(t, await search(world, "acme"), [{ matched: "acme\u00a0", note, rank: 4 }]);
  are(t, await search(world, "beta"), [{ matched: "\u200bbeta", note, rank: 4 }]);
});

test("a job is found by its staged id and by Graphile Worker's, wherever it stands", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [first, second] = await world.stage(["a", "a"]);
  await world.passes();
  const [flying] = await world.inFlight();
  const of = { kind: "job", policy: "p", partition: "a", rank: 1 };
  are(t, await search(world, second!), [{ ...of, job_id: second, state: "staged", matched: second }]);
  const [found, ...others] = await search(world, first!);
  t.like(found, { ...of, job_id: flying, state: "ready" });
  t.deepEqual(others, []);
  are(t, await search(world, ` ${flying} `), [{ ...of, job_id: flying, matched: flying }]);

  const retry = { attempt: 1, task: "p", after: 60, priority: 0, maxAttempts: 25 };
  await workerTable(world.pool).set({ attempts: 1, last_error: "no answer" }, { id: flying });
  await world.release([{ job: flying!, ok: false, attempt: 1, retry }]);
  are(t, await search(world, first!), [{ ...of, job_id: flying, state: "parked" }], "its retry");

  await world.passes();
  const [again] = await world.inFlight();
  await workerTable(world.pool).set({ attempts: 25, max_attempts: 25, last_error: "gone" }, { id: again });
  await world.release([{ job: again!, ok: false, attempt: 25 }]);
  are(
    t,
    await search(world, second!),
    [{ ...of, job_id: again, state: "failed" }],
    "it has no slot any more",
  );
});

test("a job that has ended is found in the history, by its ids and its key", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const { rows } = await world.pool.query("select id from dispatch_policy_internal.policies");
  const past = {
    ...{ staged_id: "1000000000000077", policy_id: rows[0].id, partition: "a", job_id: "4711" },
    ...{ job_key: "order-7", ended_at: new Date(), outcome: "succeeded" },
  };
  await table(world.pool, "history").add(past);
  const it = { kind: "job", job_id: "1000000000000077", partition: "a", state: "succeeded" };
  for (const id of ["1000000000000077", "4711"])
    are(t, await search(world, id), [{ ...it, matched: id, rank: 1 }]);
  are(t, await search(world, "order-7"), [{ ...it, matched: "order-7", rank: 3 }]);
});

test("errors of failed jobs and of refused ones, alike ones as a row with their number", async (t) => {
  const world = await engine(t, { gates: [concurrency(3)] });
  await world.stage(["a", "a", "b"]);
  await world.passes();
  const flying = await world.inFlight();
  const error = "Error: connect ECONNREFUSED 10.0.0.7:443\n    at TCPConnectWrap";
  await workerTable(world.pool).set({ attempts: 25, max_attempts: 25, last_error: error });
  await world.release(flying.map((job) => ({ job, ok: false, attempt: 25 })));
  const refused = { error: "the gate wants a number", retry_at: HOUR };
  const [staged] = await world.stage("c");
  await world.route();
  await table(world.pool, "staged_jobs").set(refused, { id: staged });
  are(t, await search(world, "econnrefused"), [
    {
      ...{ kind: "error", policy: "p", job_id: flying.at(-1), state: "failed", rank: 7 },
      ...{ matched: "Error: connect ECONNREFUSED 10.0.0.7:443", note: "the last of 3 jobs" },
    },
  ]);
  are(t, await search(world, "wants a number"), [
    { kind: "error", job_id: staged, partition: "c", note: null },
  ]);
  t.deepEqual(await search(world, "co"), [], "too short for an error");
});

test("policies, and those that nobody declared with their partitions", async (t) => {
  const world = await engine(t, { gates: [], policy: "send_mail" });
  const gone = new Engine(world.url, world.pool, { gates: [], policy: "send_letters" });
  await gone.stage(["ana"]);
  are(t, await search(world, "send_mail"), [{ kind: "policy", policy: "send_mail", state: "on", rank: 2 }]);
  await world.pool.query("select from dispatch_policy.pause('send_mail')");
  are(t, await search(world, "SEND_"), [
    { policy: "send_mail", state: "paused", rank: 5 },
    { policy: "send_letters", state: "undeclared", rank: 5 },
  ]);
  const partition = { kind: "partition", policy: "send_letters", partition: "ana", state: "undeclared" };
  are(t, await search(world, "ana"), [{ ...partition, rank: 2 }]);
  are(t, await search(world, "an"), [{ ...partition, rank: 5 }]);
});

test("the state of a partition: what stops it, why it waits, or that no job does", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  await world.stage(["full", "full", "idle", "paused"]);
  await world.pool.query("select from dispatch_policy.pause('p', partition => 'paused')");
  await world.passes(2);
  await world.stage("new");
  for (const [key, state] of [
    ["full", "concurrency_full"],
    ["idle", "idle"],
    ["paused", "paused"],
    ["new", "waiting"],
  ] as const)
    are(t, await search(world, key), [{ kind: "partition", partition: key, state }], key);
});

test("a partition with lanes is one row", async (t) => {
  const account = concurrency(5, { name: "account", scope: () => "" });
  const of = (key: string) => [{ ...account, keyOf: () => key }];
  const world = await engine(t, { gates: of("x") });
  await world.pool.query("update dispatch_policy_internal.policies set keyed_scopes = true");
  await world.stage("shared", { gates: of("x") });
  await world.stage("shared", { gates: of("y") });
  await world.route();
  for (const query of ["shared", "Shared", "share", "hared"])
    t.deepEqual(
      (await search(world, query)).map(({ partition }) => partition),
      ["shared"],
      query,
    );
});

test("values of a context that are numbers, and texts with quotation marks; never names", async (t) => {
  const contexts: Record<string, object> = {
    a: { account: 42, of: 421 },
    b: { account: 'the "b"', vip: true },
  };
  const world = await engine(t, { gates: [], contextOf: (key) => contexts[key]! });
  await world.stage(["a", "b"]);
  await world.route();
  const found = async (query: string) => (await search(world, query)).map(({ matched }) => matched);
  t.deepEqual(await found("42"), ["account = 42"]);
  t.deepEqual(await found('the "b"'), ['account = the "b"']);
  t.deepEqual(await found("true"), ["vip = true"]);
  for (const query of ["account", "4", "the"]) t.deepEqual(await found(query), [], query);
});

test("it says that more match, of each kind as many as were asked for", async (t) => {
  const world = await engine(t, { gates: [], policy: "work" });
  await world.stage(Array.from({ length: 7 }, (_, n) => `work-${n}`));
  await world.route();
  const hits = await search(world, "work", 3);
  t.deepEqual(said(hits), ["2 policy work", ...[0, 1, 2].map((n) => `5 partition work-${n}`), "9 more null"]);
  t.is(hits.at(-1)?.note, "of each kind only 3 are shown");
  for (const max of [0, 101, null])
    await t.throwsAsync(search(world, "work", max as number), {
      message: `dispatch_policy: search: max is ${max}, expected 1 to 100`,
    });
});

test("nothing, and blanks, lead nowhere but to a key of them", async (t) => {
  const world = await engine(t, { gates: [] });
  await world.stage(["  ", "a"]);
  await world.route();
  t.deepEqual(await search(world, ""), []);
  t.deepEqual(await search(world, " "), []);
  t.deepEqual(said(await search(world, "  ")), ["2 partition   "]);
  for (const query of ["%", "_", "\\", "'; drop table x --", "a".repeat(5000), "(.*)+"])
    t.deepEqual(await search(world, query), [], query);
});
