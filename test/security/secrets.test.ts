// What is in a payload or a context is in no log line, event, error or audit row. What is secret in a payload is on no page.
import { EventEmitter } from "node:events";
import { inspect } from "node:util";
import test from "ava";
import type { WorkerEvents } from "graphile-worker";
import { z } from "zod";
import { addPolicyJob, addPolicyJobs, concurrency, definePolicy, RetryAfter } from "../../src/index.ts";
import { shownPayload } from "../../src/ui/parts/payload.ts";
import { testDatabase } from "../helpers/database.ts";
import { random, seedOf } from "../helpers/random.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const SECRET = "hunter2-5f1e";

const Payload = z.object({
  key: z.string(),
  token: z.string(),
  fails: z.string().optional(),
  n: z.number().optional(),
});
type Payload = z.infer<typeof Payload>;

const policy = definePolicy("work", {
  payload: Payload,
  context: ({ key, token, n }) => ({ key, token, n: n === undefined ? 1 : n }),
  partitionBy: (ctx) => ctx.key,
  cost: (ctx) => ctx.n,
  gates: [concurrency({ max: 5 })],
  backoff: (_error, attempt) => {
    if (attempt > 1) throw new Error("no idea");
    return "1 millisecond";
  },
});
const others = [
  definePolicy("paths", { partitionBy: ["key", "more.key"], gates: [concurrency({ max: 1 })] }),
  definePolicy("odd_key", {
    context: () => ({}),
    partitionBy: ((_: unknown) => ({ token: SECRET })) as never,
  }),
  definePolicy("odd_context", {
    context: () => ({ at: new Map([[SECRET, SECRET]]) }) as never,
    partitionBy: () => "k",
  }),
  definePolicy("odd_cost", {
    context: () => ({ token: SECRET }),
    partitionBy: () => "k",
    cost: (ctx) => ctx.token as never,
  }),
];

/** Everything a reader of it could come upon, errors with their causes. */
function allOf(value: unknown): string {
  return inspect(value, { depth: 12, maxStringLength: null, maxArrayLength: null, showHidden: false });
}

test("adding that is refused", async (t) => {
  const { pool } = await testDatabase(t);
  const add = (to: (typeof others)[number] | typeof policy, payload: object) => () =>
    addPolicyJob(pool, to as never, payload as never);
  const calls = [
    add(policy, { key: 1, token: SECRET }),
    add(policy, { key: "k", token: { deep: SECRET } }),
    add(policy, { key: "k", token: SECRET, n: Number.NaN }),
    add(policy, { key: "k", token: SECRET, n: -1 }),
    add(policy, { key: "k", token: `${SECRET}\0` }),
    add(others[0]!, { key: "k", token: SECRET }),
    add(others[0]!, { key: { token: SECRET }, more: { key: [SECRET] } }),
    add(others[1]!, { token: SECRET }),
    add(others[2]!, { token: SECRET }),
    add(others[3]!, { token: SECRET }),
    () =>
      addPolicyJobs(pool, [{ policy, payload: { key: "k", token: SECRET }, jobKeyMode: "replace" } as never]),
    () => addPolicyJob(pool, policy, { key: "k", token: SECRET }, { priorty: 1 } as never),
    // what PostgreSQL refuses
    () => addPolicyJob(pool, policy, { key: "k", token: SECRET }, { priority: 1e6 }),
    () => addPolicyJob(pool, policy, { key: "k", token: SECRET }, {}, { schema: "nowhere" }),
    () =>
      pool.query("select dispatch_policy.add_job('work', $1, max_attempts => 1000000)", [{ token: SECRET }]),
    () => pool.query("select dispatch_policy.add_job('work', $1, job_key_mode => 'x')", [{ token: SECRET }]),
    () =>
      pool.query("select dispatch_policy.add_job('work', $1, flags => '{dispatch_policy:1}')", [
        { token: SECRET },
      ]),
  ];
  for (const [n, call] of calls.entries()) {
    const error = await t.throwsAsync(call, undefined, `${n}`);
    t.false(allOf(error).includes(SECRET), `${n}: ${allOf(error)}`);
  }
});

test("failing, retried, refused, copied and lost jobs", async (t) => {
  const database = await testDatabase(t);
  const { pool } = database;
  const events: WorkerEvents = new EventEmitter();
  const told: unknown[] = [];
  const emit = events.emit.bind(events);
  events.emit = (name: string | symbol, ...args: unknown[]) => {
    if (String(name).startsWith("dispatchPolicy:")) told.push([name, args]);
    return emit(name as never, ...(args as [never]));
  };
  const worker = await startWorker(t, {
    database,
    policies: [policy, others[0]!],
    worker: { events },
    tasks: {
      work: async (payload, { job }) => {
        const { fails } = payload as Payload;
        if (fails === "retry-after") throw new RetryAfter("1 millisecond");
        if (fails !== undefined && job.attempts <= Number(fails)) throw new Error("failed");
      },
    },
  });
  const { utils } = worker;
  const token = SECRET;
  await addPolicyJob(pool, policy, { key: "ok", token });
  await addPolicyJob(pool, policy, { key: "once", token, fails: "1" });
  await addPolicyJob(pool, policy, { key: "twice", token, fails: "2" }, { maxAttempts: 2 });
  await addPolicyJob(pool, policy, { key: "later", token, fails: "retry-after" }, { maxAttempts: 1 });
  // past the policy: good, and without a partition
  await pool.query("select graphile_worker.add_job('work', $1)", [{ key: "past", token }]);
  await pool.query("select graphile_worker.add_job('work', $1, max_attempts => 1)", [{ token }]);
  // a key only JavaScript could tell, which it cannot
  await pool.query("select dispatch_policy.add_job('work', $1)", [{ token }]);
  // what Graphile Worker refuses
  const payload = JSON.stringify({ key: "a", more: { key: "b" }, token });
  const client = await pool.connect();
  await client.query("begin");
  await client.query("select dispatch_policy.add_job('paths', $1)", [payload]);
  await table(client, "staged_jobs").set({ queue_name: "q".repeat(200) }, { task_identifier: "paths" });
  await client.query("commit");
  client.release();
  await worker.sees("job:success", 3);
  await worker.sees("job:failed", 3);
  await until("the refused job is quarantined", async () => {
    const { n } = await worker.row(
      "select count(*)::int as n from dispatch_policy.staged_jobs where error is not null",
    );
    return n > 0;
  });
  await utils.pause({ policy: "work", reason: "test" });
  await addPolicyJob(pool, policy, { key: "gone", token }, { jobKey: "gone" });
  await utils.remove({ policy: "work", partition: "gone" });
  await utils.resume({ policy: "work" });
  await t.throwsAsync(utils.hold({ policy: "work", partition: "k", forMs: -1 }));
  await utils.sweep();

  t.true(worker.log.length > 5 && told.length > 5);
  // Graphile Worker gives its logger the job itself, beside the message
  const lines = worker.log.map(({ meta, ...line }) =>
    line.scope.label === "worker" ? line : { ...line, meta },
  );
  t.deepEqual(
    lines.filter((line) => allOf(line).includes(SECRET)),
    [],
  );
  t.deepEqual(
    told.filter((one) => allOf(one).includes(SECRET)),
    [],
  );
  for (const table of ["audit", "policies", "limiters", "overrides", "workers", "jobs", "in_flight_jobs"]) {
    const { rows } = await pool.query(`select * from dispatch_policy.${table}`);
    t.false(allOf(rows).includes(SECRET), table);
  }
  const { rows } = await pool.query("select error from dispatch_policy.staged_jobs");
  t.false(allOf(rows).includes(SECRET));
});

const NAMES = [
  ...[
    "password",
    "PASSWORD",
    "pwd",
    "dbPwd",
    "passwordHash",
    "clientSecret",
    "x-api-key",
    "accessKey",
    "jwt",
    "idJwt",
  ],
  ...[
    "otp",
    "smsOtp",
    "session",
    "sessionId",
    "PHPSESSIONID",
    "signature",
    "X-Amz-Signature",
    "sig",
    "card",
    "cards",
  ],
  ...[
    "creditCard",
    "cardNumber",
    "card_no",
    "dsn",
    "sentryDsn",
    "DATABASE_DSN",
    "pin",
    "cvv2",
    "iban",
    "refresh_token",
  ],
];
const PLAIN = ["discard", "cardinality", "hotplate", "footprint", "pinned", "tenant", "design", "jobId"];

test("values whose names say that they are secret are hidden, and those of other names are not", (t) => {
  for (const name of NAMES)
    for (const value of [SECRET, [SECRET], { is: SECRET }, { [SECRET]: 1 }])
      t.false(shownPayload(JSON.stringify({ a: [{ [name]: value }] })).includes(SECRET), name);
  for (const name of PLAIN) t.true(shownPayload(JSON.stringify({ [name]: "seen" })).includes("seen"), name);
});

test("a text is masked within: the user of a URL, JSON, and what stands as a name with its value", (t) => {
  const inside = JSON.stringify({ user: "ana", password: SECRET, n: 1 });
  for (const text of [
    `postgres://app:${SECRET}@db.example:5432/app?ssl=1`,
    `redis://:${SECRET}@cache and amqp://${SECRET}@queue`,
    `see https://ana:p@${SECRET}@h.example/x#y`,
    `https://h.example/?user=ana&token=${SECRET}&x=1`,
    `host=h password=${SECRET}`,
    `password='a ${SECRET}'`,
    `Authorization: Bearer ${SECRET}`,
    `Cookie: a=1, sid=2\nSet-Cookie: ${SECRET}`,
    inside,
    ` ${inside} `,
    JSON.stringify(inside),
    JSON.stringify([{ body: JSON.stringify({ body: inside }) }]),
    `answer: ${inside}`,
    `answer: ${JSON.stringify(inside)}`,
    `cut off: {"user": "ana", "password": "a\\"${SECRET}`,
    `[not json, pwd: ${SECRET}]`,
  ]) {
    const shown = shownPayload(JSON.stringify({ note: text }));
    t.false(shown.includes(SECRET), shown);
    t.true(shown.includes("(hidden)"), shown);
  }
  for (const text of [
    "ana@example.org wrote https://h.example/a?b=c",
    "a: b",
    "12",
    "[draft] {x}",
    '"quoted"',
  ])
    t.deepEqual(JSON.parse(shownPayload(JSON.stringify({ text }))), { text });
});

test("whatever a payload is, to show it fails never and shows no secret", (t) => {
  const { pick, below } = random(seedOf(t));
  const value = (depth: number): unknown => {
    const inner = () => value(depth - 1);
    const kinds: readonly (() => unknown)[] = [
      () => ({ [pick(NAMES)]: depth > 0 ? pick([inner(), SECRET, [SECRET]]) : SECRET }),
      () => `${pick(["https", "postgres"])}://${pick(["a:", ":", ""])}${SECRET}@h/${pick(PLAIN)}`,
      () => `${pick(NAMES)}${pick(["=", ": ", ":"])}${SECRET}`,
      () =>
        pick([null, true, 1e300, -0, 12345678901234567890n.toString(), "", "{", '"', "[[", "\\", "\ud800"]),
      () => (depth > 0 ? JSON.stringify(inner()) : "x"),
      () => (depth > 0 ? Array.from({ length: below(4) }, inner) : []),
      () => (depth > 0 ? { [pick(PLAIN)]: inner(), [pick(NAMES)]: SECRET } : {}),
      () => (depth > 0 ? `log: ${JSON.stringify(inner())}` : "log"),
    ];
    return pick(kinds)();
  };
  for (let n = 0; n < 3000; n++) {
    const text = JSON.stringify(value(5));
    const shown = shownPayload(text);
    t.false(shown.includes(SECRET), `${text}\n${shown}`);
  }
  for (const text of [
    "[".repeat(200_000),
    "",
    "{",
    `${"[".repeat(200_000)}"${SECRET}"${"]".repeat(200_000)}`,
  ])
    t.is(shownPayload(text), "(hidden)");
  t.true(shownPayload(JSON.stringify({ note: "[".repeat(200_000) })).includes("[["));
  const long = "a1".repeat(500_000);
  t.true(shownPayload(JSON.stringify({ long })).includes(long));
});
