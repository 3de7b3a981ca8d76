// The adapters of the public benchmark, each run for some seconds as its harness runs one. What the lines must be is from
// CONTRIBUTING_ADAPTERS.md of hardbyte/postgresql-job-queue-benchmarking, at commit 93677ca. Nothing about pace.
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { Latencies } from "../../bench/public/latencies.ts";
import { readSettings } from "../../bench/public/settings.ts";
import { atLength } from "../helpers/at-length.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";

const FOLDER = fileURLToPath(new URL("../../bench/public/", import.meta.url));
const REQUIRED = [
  ...["claim_p50_ms", "claim_p95_ms", "claim_p99_ms"],
  ...["enqueue_rate", "completion_rate", "queue_depth"],
];
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

interface Manifest {
  readonly system: string;
  readonly db_name: string;
  readonly event_tables: readonly string[];
  readonly event_indexes: readonly string[];
  readonly extensions: readonly string[];
}

const manifests = globSync("*/adapter.json", { cwd: FOLDER }).map((file) => ({
  folder: path.dirname(file),
  manifest: JSON.parse(readFileSync(path.join(FOLDER, file), "utf8")) as Manifest,
}));

type Line = Readonly<Record<string, unknown>>;

/** Starts an adapter on a database of its own. `lines` grows while it runs. */
async function start(t: ExecutionContext, system: string, env: NodeJS.ProcessEnv) {
  const { url } = await testDatabase(t, { migrated: false });
  const child = spawn(process.execPath, [path.join(FOLDER, "main.ts"), system], {
    env: {
      ...process.env,
      ...{ DATABASE_URL: url, SCENARIO: "long_horizon", SAMPLE_EVERY_S: "1", WORKER_COUNT: "4" },
      ...env,
    },
  });
  t.teardown(() => child.kill("SIGKILL"));
  const lines: Line[] = [];
  readline.createInterface({ input: child.stdout }).on("line", (line) => lines.push(JSON.parse(line)));
  let stderr = "";
  child.stderr.on("data", (data) => {
    stderr += data;
  });
  const metric = (name: string) => lines.filter((line) => line.metric === name);
  return {
    child,
    lines,
    metric,
    /** Of all samples together, by their windows. */
    total: (name: string) =>
      metric(name).reduce((sum, { value, window_s: window }) => sum + Number(value) * Number(window), 0),
    until: (fact: string, holds: () => boolean) =>
      until(fact, holds, { seen: () => ({ lines: lines.slice(-20), stderr }) }),
    said: () => stderr,
  };
}

async function end(child: ChildProcessWithoutNullStreams): Promise<unknown> {
  const ended = once(child, "close");
  child.kill("SIGTERM");
  return (await ended)[0];
}

function checkDescriptor(t: ExecutionContext, line: Line, manifest: Manifest): void {
  t.like(line, { kind: "descriptor", system: manifest.system });
  for (const name of ["version", "schema_version", "db_name"]) t.is(typeof line[name], "string", name);
  t.regex(String(line.started_at), ISO);
  for (const list of ["event_tables", "extensions"] as const) {
    const said = line[list] as string[];
    t.true(
      manifest[list].every((name) => said.includes(name)),
      `${list} of adapter.json are all there`,
    );
  }
  const tables = line.event_tables as string[];
  t.true(tables.length > 1 && tables.every((name) => /^\w+\.\w+$/.test(name)), tables.join());
  t.regex(tables[0] ?? "", /_(staged_)?jobs$/, "the harness's readers scan the first one");
}

function checkSample(t: ExecutionContext, line: Line, system: string): void {
  t.like(line, { system, kind: "adapter", subject_kind: "adapter", subject: "", instance_id: 0 });
  t.regex(String(line.t), ISO);
  t.is(typeof line.metric, "string");
  for (const name of ["value", "window_s"])
    t.true(Number.isFinite(line[name]) && Number(line.window_s) >= 0, JSON.stringify(line));
}

/** Each runs an adapter for some seconds. */

for (const { folder, manifest } of manifests) {
  const { system } = manifest;

  test.serial(`${system}: its manifest is as the harness reads it`, (t) => {
    t.is(folder, `${system}-bench`);
    t.regex(manifest.db_name, /^[a-z_]+_bench$/);
    for (const list of ["event_tables", "event_indexes", "extensions"] as const)
      t.true(Array.isArray(manifest[list]));
  });

  atLength(`${system}: a run by its own clock writes the contract's lines, and ends when told`, async (t) => {
    const env = { PRODUCER_RATE: "300", JOB_WORK_MS: "1", LIMIT_AT_ONCE: "2", LIMIT_PER_SECOND: "100" };
    const { child, lines, metric, total, until, said } = await start(t, system, env);
    await until(
      "some hundred jobs are done",
      () => total("completion_rate") > 300 && metric("queue_depth").length >= 3,
    );
    const code = await end(child);
    t.is(code, 0, said());
    checkDescriptor(t, lines[0]!, manifest);
    for (const line of lines.slice(1)) checkSample(t, line, system);
    const ticks = Map.groupBy(lines.slice(1), (line) => line.t);
    for (const [at, samples] of ticks) {
      const names = samples.map((line) => line.metric);
      for (const name of [...REQUIRED, "overruns", "rate_error", "quiet_p95_ms"])
        t.true(names.includes(name), `${at}: ${name}`);
    }
    t.is(total("overruns"), 0, "each has a way to hold a cap in one process");
    t.true(metric("claim_p99_ms").some(({ value }) => Number(value) > 0));
    t.true(metric("quiet_p95_ms").some(({ value }) => Number(value) > 0));
  });

  atLength(`${system}: the harness says when to add jobs, and each of them runs`, async (t) => {
    const env = { PRODUCER_PACING: "harness", PRODUCER_RATE: "1", PRODUCER_BATCH_MAX: "3" };
    const { child, total, metric, until, said } = await start(t, system, env);
    await until("it runs", () => metric("queue_depth").length > 0);
    child.stdin.write("ENQUEUE 7\nENQUEUE 4\n");
    await until("all of them have run", () => Math.round(total("completion_rate")) >= 11);
    t.is(await end(child), 0, said());
    t.is(Math.round(total("enqueue_rate")), 11);
    t.is(Math.round(total("completion_rate")), 11);
    t.is(metric("queue_depth").at(-1)?.value, 0);
    t.is(metric("rate_error").length + metric("overruns").length, 0, "nothing is limited");
  });
}

atLength("a second replica leaves out what is the same for all", async (t) => {
  const { child, metric, until } = await start(t, "graphile-worker", { BENCH_INSTANCE_ID: "1" });
  await until("it runs", () => metric("completion_rate").some(({ value }) => Number(value) > 0));
  t.is(await end(child), 0);
  t.is(metric("queue_depth").length + metric("producer_target_rate").length, 0);
  t.true(metric("claim_p99_ms").every((line) => line.instance_id === 1));
});

atLength("a queue is filled to a depth, and the rate follows its file", async (t) => {
  const file = path.join(await mkdtemp(path.join(os.tmpdir(), "rate-")), "rate");
  t.teardown(() => rm(path.dirname(file), { recursive: true }));
  await writeFile(file, "7");
  const env = {
    PRODUCER_MODE: "depth-target",
    TARGET_DEPTH: "40",
    JOB_WORK_MS: "500",
    PRODUCER_RATE_CONTROL_FILE: file,
  };
  const { child, metric, until } = await start(t, "graphile-worker", env);
  const near = ({ value }: Line) => Number(value) > 20 && Number(value) <= 40;
  await until("the depth is near its target", () => metric("queue_depth").some(near));
  t.is(metric("producer_target_rate").at(-1)?.value, 7);
  await writeFile(file, "12");
  await until("the new rate is said", () => metric("producer_target_rate").at(-1)?.value === 12);
  t.is(await end(child), 0);
});

test.serial("a system that it does not know, and a wrong setting, are errors that say so", async (t) => {
  const { child, said } = await start(t, "sidekiq", {});
  t.is((await once(child, "close"))[0], 1);
  t.regex(said(), /^# Name one of graphile-worker, graphile-worker-dispatch-policy; got "sidekiq"$/m);
  const DATABASE_URL = "postgres:///app";
  t.throws(() => readSettings({}), { message: /^DATABASE_URL must name a database/ });
  for (const [name, value, message] of [
    ["WORKER_COUNT", "0", 'WORKER_COUNT must be a whole number from 1 on; got "0"'],
    ["PRODUCER_MODE", "burst", 'PRODUCER_MODE must be one of fixed, depth-target; got "burst"'],
    ["SCENARIO", "chaos", 'SCENARIO must be long_horizon; got "chaos"'],
  ] as const)
    t.throws(() => readSettings({ DATABASE_URL, [name]: value }), { message });
});

test("percentiles have three figures, and forget what is older than 30 seconds", (t) => {
  const latencies = new Latencies();
  const now = 1_000_000_000;
  t.is(latencies.percentile(50, now), 0);
  for (let ms = 1; ms <= 1000; ms++) latencies.record(ms, now - 20_000 + ms);
  latencies.record(60_000, now - 31_000);
  for (const [percent, ms] of [
    [50, 500],
    [95, 950],
    [99, 990],
  ] as const)
    t.true(Math.abs(latencies.percentile(percent, now) / ms - 1) < 0.002, `${percent}`);
  t.is(latencies.percentile(99, now + 30_000), 0);
});
