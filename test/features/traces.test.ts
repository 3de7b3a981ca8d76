// Trace context through staging, with OpenTelemetry's SDK and an exporter in memory.
import { context, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { addPolicyJob, definePolicy, makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { inside } from "../helpers/inside.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const exporter = new InMemorySpanExporter();
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
trace.setGlobalTracerProvider(
  new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
);
const tracer = trace.getTracer("the application");

const work = definePolicy("work", {
  partitionBy: "key",
  gates: ({ concurrency }) => [concurrency({ max: 10 })],
  backoff: () => "10 milliseconds",
});
const policies = [work];

/** Adds within a span of the application's, and returns the span's trace context. */
function traced(add: () => Promise<unknown>): Promise<string> {
  return tracer.startActiveSpan("add", async (span) => {
    await add();
    span.end();
    return traceparentOf(span);
  });
}

function traceparentOf(span: Span): string {
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}

/** The runs of a job's key so far, in order. Spans end after the job's events are emitted at the latest. */
function runsOf(key: string): ReadableSpan[] {
  return exporter
    .getFinishedSpans()
    .filter(({ attributes, kind }) => {
      return kind === SpanKind.CONSUMER && attributes["messaging.destination.partition.id"] === key;
    })
    .toSorted((one, other) => ms(one.startTime) - ms(other.startTime));
}

function linksOf(span: ReadableSpan | undefined): string[] {
  return (span?.links ?? []).map(({ context: { traceId, spanId } }) => `00-${traceId}-${spanId}-01`);
}

/** The waits before a run, by the times at which they began. */
function waitsOf(run: ReadableSpan): ReadableSpan[] {
  const isOfRun = ({ parentSpanContext }: ReadableSpan) =>
    parentSpanContext?.spanId === run.spanContext().spanId;
  return exporter
    .getFinishedSpans()
    .filter(isOfRun)
    .toSorted((one, other) => ms(one.startTime) - ms(other.startTime));
}

function ms([seconds, nanos]: [number, number]): number {
  return seconds * 1000 + nanos / 1e6;
}

const start = (t: ExecutionContext, task: TestTask = async () => {}): Promise<TestWorker> =>
  startWorker(t, { policies, tasks: { work: task as never } });
type TestTask = (payload: { key: string }, helpers: { job: { attempts: number } }) => Promise<void>;

interface Idle {
  readonly pool: pg.Pool;
  readonly utils: PolicyUtils;
  /** The flags of Graphile Worker's jobs. */
  flags(): Promise<string[]>;
  /** The trace contexts of staged jobs, by id. */
  staged(): Promise<(string | null)[]>;
}

/** A database whose jobs nobody runs. */
async function idle(t: ExecutionContext): Promise<Idle> {
  const { pool } = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies, logger: silent });
  t.teardown(async () => utils.release());
  const column = async (query: string) => (await pool.query(query)).rows.map(({ value }) => value);
  return {
    ...{ pool, utils },
    flags: () => column("select jsonb_object_keys(flags) as value from graphile_worker.jobs order by id"),
    staged: async () =>
      (await table(pool, "staged_jobs").all({}, "id")).map(({ traceparent }) => traceparent),
  };
}

test("a run links to the span that added its job, and its waits have true times", async (t) => {
  let inside: string | undefined;
  const task = async () => {
    inside = trace.getActiveSpan()?.spanContext().spanId;
  };
  const worker = await tracer.startActiveSpan("the start of the application", () => start(t, task));
  const before = Date.now();
  const producer = await traced(() => worker.utils.addJob(work, { key: "linked" }));
  await worker.sees("job:success");
  const [run] = runsOf("linked");
  t.is(run!.name, "process work");
  t.deepEqual(linksOf(run), [producer]);
  t.is(run!.parentSpanContext, undefined, "a trace of its own");
  t.is(inside, run!.spanContext().spanId, "what the task does belongs to the run");
  t.like(run!.attributes, {
    "messaging.system": "graphile_worker",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "work",
    "dispatch_policy.policy": "work",
    "dispatch_policy.attempt": 1,
  });
  t.is(run!.attributes["messaging.message.id"], worker.happened[0]!.id);
  t.regex(String(run!.attributes["dispatch_policy.staged_id"]), /^10{14}\d$/);
  t.is(run!.status.code, SpanStatusCode.UNSET);
  const [staged, queued] = waitsOf(run!);
  t.deepEqual([staged!.name, queued!.name], ["staged", "queued"]);
  // the database's clock and this one are the machine's, but a Date has no microseconds
  t.true(ms(staged!.startTime) >= before - 1);
  t.true(ms(staged!.endTime) >= ms(staged!.startTime));
  t.is(ms(queued!.startTime), ms(staged!.endTime), "no gap between them");
  t.true(ms(queued!.endTime) <= ms(run!.endTime));
});

test("every way to add carries the context, also of what a task adds", async (t) => {
  const worker = await start(t, async ({ key }) => {
    if (key === "outer") await worker.utils.addJob("work", { key: "inner" });
  });
  const { utils, pool, database } = worker;
  const stranger = await makePolicyUtils({ connectionString: database.url, logger: silent });
  t.teardown(async () => stranger.release());
  const ways: Record<string, (key: string) => Promise<unknown>> = {
    policy: (key) => addPolicyJob(pool, work, { key }),
    keyed: (key) => addPolicyJob(pool, work, { key }, { jobKey: "k" }),
    deduped: (key) => addPolicyJob(pool, work, { key }, { jobKey: "d", jobKeyMode: "unsafe_dedupe" }),
    several: (key) =>
      utils.addJobs([
        { identifier: "work", payload: { key } },
        { identifier: "work", payload: { key: "other" } },
      ]),
    unknown: (key) => stranger.addJob("work", { key }),
    outer: (key) => utils.addJob("work", { key }),
  };
  const producers = new Map<string, string>();
  for (const [key, add] of Object.entries(ways)) producers.set(key, await traced(() => add(key)));
  await worker.sees("job:success", 8);
  for (const [key, producer] of producers) t.deepEqual(runsOf(key).map(linksOf), [[producer]], key);
  const [outer] = runsOf("outer");
  const { traceId, spanId } = outer!.spanContext();
  t.deepEqual(runsOf("inner").map(linksOf), [[`00-${traceId}-${spanId}-01`]]);
});

test("each attempt links to the producer, and a failed one has the error", async (t) => {
  const worker = await start(t, async (_payload, { job }) => {
    if (job.attempts === 1) throw new RangeError("too far");
  });
  const producer = await traced(() => worker.utils.addJob("work", { key: "retried" }));
  await worker.sees("job:success");
  const [first, second] = runsOf("retried");
  t.deepEqual([first, second].map(linksOf), [[producer], [producer]]);
  t.deepEqual(first!.status, { code: SpanStatusCode.ERROR, message: "too far" });
  t.is(first!.attributes["error.type"], "RangeError");
  t.deepEqual(
    first!.events.map(({ name }) => name),
    ["exception"],
  );
  t.is(second!.status.code, SpanStatusCode.UNSET);
  t.is(second!.attributes["dispatch_policy.attempt"], 2);
  t.deepEqual(
    waitsOf(second!).map(({ name }) => name),
    ["queued"],
    "its flag has the times of the first attempt",
  );
});

test("a job with a runAt is scheduled until then", async (t) => {
  const worker = await start(t);
  const runAt = new Date(Date.now() + 2000); // long enough to be staged before it, on a busy machine
  await traced(() => worker.utils.addJob("work", { key: "later" }, { runAt }));
  await worker.sees("job:success");
  const [scheduled, staged, queued] = waitsOf(runsOf("later")[0]!);
  t.deepEqual([scheduled!.name, staged!.name, queued!.name], ["scheduled", "staged", "queued"]);
  t.is(ms(scheduled!.endTime), runAt.getTime());
  t.is(ms(staged!.startTime), runAt.getTime());
});

test("without a producer's span a job is staged and flagged as ever, and its run links to nothing", async (t) => {
  const { utils, flags, staged } = await idle(t);
  await utils.addJob("work", { key: "untraced" });
  await utils.addJob("work", { key: "untraced" }, { jobKey: "k" });
  t.deepEqual(await staged(), [null, null]);
  await utils.tick();
  const [plain, keyed] = await flags();
  t.regex(plain!, /^dispatch_policy:\d+@\d+#[0-9a-f]{8}$/);
  t.regex(keyed!, /^dispatch_policy:\d+@\d+#[0-9a-f]{8}\.[0-9a-f]{8}\.\d{16}$/);

  const worker = await start(t);
  await worker.utils.addJob("work", { key: "untraced" });
  await worker.sees("job:success");
  const [run] = runsOf("untraced");
  t.deepEqual(run!.links, []);
  t.deepEqual(
    waitsOf(run!).map(({ name }) => name),
    ["queued"],
  );
});

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("SQL producers set dispatch_policy.traceparent for a transaction", async (t) => {
  const worker = await start(t);
  const client = await worker.pool.connect();
  await client.query("begin");
  await client.query("select set_config('dispatch_policy.traceparent', $1, true)", [PARENT]);
  await client.query(`select dispatch_policy.add_job('work', '{"key": "sql"}')`);
  await client.query("commit");
  await client.query(`select dispatch_policy.add_job('work', '{"key": "after"}')`);
  client.release();
  await worker.sees("job:success", 2);
  t.deepEqual(runsOf("sql").map(linksOf), [[PARENT]]);
  t.deepEqual(runsOf("after").map(linksOf), [[]], "the setting has ended with the transaction");
});

test("a malformed trace context is ignored", async (t) => {
  const { pool, staged } = await idle(t);
  const malformed = [
    "",
    "nonsense",
    PARENT.toUpperCase(),
    `${PARENT}-more`,
    `${PARENT}\n`,
    PARENT.replace("00-", "ff-"),
    PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0".repeat(32)),
    PARENT.replace("b7ad6b7169203331", "0".repeat(16)),
    `${PARENT.slice(0, -2)}".`,
  ];
  const client = await pool.connect();
  for (const text of [...malformed, PARENT]) {
    await client.query("select set_config('dispatch_policy.traceparent', $1, false)", [text]);
    await client.query(`select dispatch_policy.add_job('work', '{"key": "malformed"}')`);
  }
  client.release(true);
  t.deepEqual(await staged(), [...malformed.map(() => null), PARENT]);
});

test("a traced job of the last possible time can be failed", async (t) => {
  const { utils, pool, flags } = await idle(t);
  await pool.query(
    "select dispatch_policy.add_job('work', '{\"key\": \"last\"}', run_at => '294276-12-31 23:59:59+00') from set_config('dispatch_policy.traceparent', $1, false)",
    [PARENT],
  );
  const [job] = (await pool.query("select id from dispatch_policy.staged_jobs")).rows;
  await utils.permanentlyFailJobs([job.id], "no longer wanted");
  const [flag] = await flags();
  t.regex(flag!, new RegExp(`\\.${PARENT}\\.\\d{16}$`), "it has no time that a reader could not read");
});

test("a job that replaces another of its key has its own producer's context, or none", async (t) => {
  const { utils, staged } = await idle(t);
  const add = (key: string) => utils.addJob("work", { key }, { jobKey: "k" });
  await traced(() => add("first"));
  const second = await traced(() => add("second"));
  t.deepEqual(await staged(), [second]);
  await add("third");
  t.deepEqual(await staged(), [null]);
});

test("the other readers of a traced job's flag read it as any other", async (t) => {
  const { utils, pool, flags } = await idle(t);
  const producer = await traced(async () => {
    await utils.addJob("work", { key: "read" });
    await utils.addJob("work", { key: "read" }, { jobKey: "k", runAt: new Date(0) });
  });
  await utils.tick();
  const [plain, keyed] = await flags();
  t.regex(plain!, new RegExp(`^dispatch_policy:\\d+@\\d+#[0-9a-f]{8}\\.\\.\\.${producer}\\.\\d{16}$`));
  t.regex(keyed!, new RegExp(`#[0-9a-f]{8}\\.[0-9a-f]{8}\\.\\d{16}\\.${producer}\\.\\d{16}$`));
  const rows = await inside(
    pool,
    `
    select dispatch_policy_internal._is_ours(j.flags, j.created_at, j.key) as ours,
      dispatch_policy_internal._is_replaced(j.flags, j.key, j.last_error) as replaced,
      dispatch_policy_internal._staged_id_of(j.flags) = f.staged_id as staged_id,
      starts_with(
        q.id::text, left(split_part(split_part(dispatch_policy_internal._flag_text(j.flags), '@', 2), '#', 2), 8)) as mark
    from graphile_worker.jobs j join dispatch_policy.in_flight_jobs f on f.job_id = j.id
    join dispatch_policy.partitions q using (policy, partition)`,
  );
  t.deepEqual(rows, Array(2).fill({ ours: true, replaced: false, staged_id: true, mark: true }));
});

test("an admitted job keeps its context when it is adopted, and a staged one that is unstaged loses it", async (t) => {
  const { utils, pool, flags, staged } = await idle(t);
  const producer = await traced(() => utils.addJob("work", { key: "adopted" }));
  await utils.tick();
  await table(pool, "in_flight_jobs").remove();
  await utils.adopt({ task: "work" });
  t.deepEqual(await staged(), [producer]);
  await utils.disable({ policy: "work" });
  await utils.unstage({ policy: "work" });
  t.deepEqual(await flags(), []);
});

test("a job that is copied keeps its context", async (t) => {
  const database = await testDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies, logger: silent });
  const producer = await traced(() => utils.addJob("work", { key: "copied" }));
  await utils.tick();
  await table(database.pool, "in_flight_jobs").remove();
  // a row that somebody has touched is not believed
  await database.pool.query(
    "select graphile_worker.reschedule_jobs(array(select id from graphile_worker.jobs), priority => 1)",
  );
  await utils.pause({ policy: "work" });
  await utils.release();
  const worker = await startWorker(t, { database, policies, tasks: { work: async () => {} } });
  await worker.sees("job:success");
  t.deepEqual(runsOf("copied"), [], "it did not run");
  t.is((await table(worker.pool, "staged_jobs").one()).traceparent, producer);
  await worker.utils.resume({ policy: "work" });
  await worker.sees("job:success", 2);
  t.deepEqual(runsOf("copied").map(linksOf), [[producer]]);
});
