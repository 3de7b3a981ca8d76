// The alerts and dashboards of examples/monitoring, by promtool and a real Prometheus where they are installed.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { freePort } from "../../scripts/postgres/port.ts";
import { definePolicy, makePolicyUtils, metricsHandler } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { findProgram } from "../helpers/program.ts";
import { serve } from "../helpers/serve.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";

const FOLDER = fileURLToPath(new URL("../../examples/monitoring/", import.meta.url));
const read = (file: string) => readFileSync(path.join(FOLDER, file), "utf8");

/** PROMETHEUS_HOME's, else the first on PATH; undefined: not installed. */
const { PROMETHEUS_HOME } = process.env;
const find = (program: string) =>
  PROMETHEUS_HOME ? path.join(PROMETHEUS_HOME, program) : findProgram(program);
const promtool = find("promtool");
const prometheus = find("prometheus");
const withPrometheus = promtool && prometheus ? test : test.skip;

test("each statement of the dashboard for PostgreSQL runs", async (t) => {
  const { pool } = await testDatabase(t);
  const { panels } = JSON.parse(read("grafana-postgresql.json"));
  for (const { title, targets } of panels) {
    const text = targets[0].rawSql
      .replace("$__timeFilter(minute)", "minute between now() - interval '3 hours' and now()")
      .replace("$policy", "'p'");
    await t.notThrowsAsync(pool.query(text), title);
  }
});

withPrometheus("planted faults raise their alerts, and an hour of throttling raises none", async (t) => {
  const run = promisify(execFile);
  t.regex(
    (await run(promtool!, ["check", "rules", path.join(FOLDER, "alerts.yml")])).stdout,
    /11 rules found/,
  );
  t.regex((await run(promtool!, ["test", "rules", path.join(FOLDER, "alerts.test.yml")])).stdout, /SUCCESS/);
});

withPrometheus("a real Prometheus scrapes the figures, and fires when no worker has a policy", async (t) => {
  const { pool } = await testDatabase(t);
  const work = definePolicy("work", { partitionBy: "tenant" });
  const utils = await makePolicyUtils({ pgPool: pool, policies: [work], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJobs(["a", "b"].map((tenant) => ({ identifier: "work", payload: { tenant } })));
  const target = await serve(t, metricsHandler(utils));
  const url = await startPrometheus(t, target);
  const ask = async (what: string) =>
    ((await (await fetch(`${url}/api/v1/${what}`)).json()) as { data: unknown }).data;
  await until("the target is up", async () => {
    const { activeTargets } = (await ask("targets")) as {
      activeTargets: { health: string; lastError: string }[];
    };
    return activeTargets[0]?.health === "up";
  });
  await until("the alert fires", async () => {
    const { alerts } = (await ask("alerts")) as {
      alerts: { labels: Record<string, string>; state: string }[];
    };
    return alerts.some(
      ({ labels, state }) =>
        labels.alertname === "DispatchPolicyWithoutWorker" && labels.policy === "work" && state === "firing",
    );
  });
  const { groups } = (await ask("rules")) as { groups: { rules: { name: string; health: string }[] }[] };
  t.deepEqual(
    groups.flatMap(({ rules }) => rules).filter(({ health }) => health !== "ok"),
    [],
  );
});

/** With the example's rules, which do not wait here before they fire. */
async function startPrometheus(t: ExecutionContext, target: string): Promise<string> {
  const folder = mkdtempSync(path.join(os.tmpdir(), "prometheus-"));
  const port = await freePort();
  writeFileSync(path.join(folder, "alerts.yml"), read("alerts.yml").replace(/^ +for: .*\n/gm, ""));
  writeFileSync(
    path.join(folder, "prometheus.yml"),
    `global: { evaluation_interval: 1s }\n${read("prometheus.yml").replace("15s", "1s").replace("localhost:9464", target)}`,
  );
  const child = spawn(
    prometheus!,
    [
      `--config.file=${path.join(folder, "prometheus.yml")}`,
      `--storage.tsdb.path=${path.join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: "ignore" },
  );
  const gone = once(child, "exit");
  t.teardown(async () => {
    child.kill();
    await gone;
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `http://127.0.0.1:${port}`;
  await until("Prometheus answers", () =>
    fetch(`${url}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  return url;
}
