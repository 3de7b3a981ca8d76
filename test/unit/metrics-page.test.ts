// docs/production.md has each metric with its type, and each alert. Alerts and dashboards use no metric that there is not.
import { readFileSync } from "node:fs";
import test from "ava";
import { METRICS } from "../../src/metrics/catalogue.ts";

const ROOT = new URL("../../", import.meta.url);
const read = (file: string) => readFileSync(new URL(file, ROOT), "utf8");
const example = (file: string) => read(`examples/monitoring/${file}`);
const page = read("docs/production.md");
/** Labels, and options that the list names. */
const OTHERS = ["version", "reason", "gate", "outcome", "kind", "quantile", "whenBusy", "run_at"];

test("each metric is on the page, with its type", (t) => {
  const [, section = ""] = page.split("\n### The metrics\n");
  for (const type of ["gauge", "counter", "summary"]) {
    const [, line = ""] = new RegExp(`^- \\*\\*${type}\\*\\*: (.*)$`, "m").exec(section) ?? [];
    const named = [...line.matchAll(/`(\w+)`/g)].map(([, name = ""]) => name);
    const ofType = Object.keys(METRICS).filter((name) => METRICS[name]?.type === type);
    t.deepEqual(named.filter((name) => !OTHERS.includes(name)).toSorted(), ofType.toSorted(), type);
  }
});

test("each alert is on the page", (t) => {
  const alerts = [...example("alerts.yml").matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
  t.deepEqual(
    [...page.matchAll(/^- `(DispatchPolicy\w+)`/gm)].map(([, name]) => name).toSorted(),
    alerts.toSorted(),
  );
});

test("each alert names a page, and the command explain if it is about one policy", (t) => {
  for (const [, name = "", rest = ""] of example("alerts.yml").matchAll(
    /- alert: (\w+)\n([\s\S]*?)(?=\n {6}- alert|$)/g,
  )) {
    t.regex(rest, /^ +page: docs\/\w+\.md#[\w-]+$/m, name);
    t.is(/explain --policy/.test(rest), rest.includes("$labels.policy"), name);
  }
});

test("alerts and dashboards use no metric that there is not", (t) => {
  for (const file of ["alerts.yml", "alerts.test.yml", "grafana-prometheus.json"]) {
    const used = [...example(file).matchAll(/dispatch_policy_(\w+)/g)].map(([, name]) => name as string);
    t.true(used.length > 5, file);
    for (const name of used) t.true(name in METRICS, name);
  }
});

test("the panels of passes, full gates and drops say what they mean", (t) => {
  const { panels } = JSON.parse(example("grafana-prometheus.json"));
  for (const name of ["last_pass_age_seconds", "full_limiters", "dropped_total"]) {
    const its = panels.filter(({ targets }: { targets: { expr: string }[] }) =>
      targets.some(({ expr }) => expr.includes(`dispatch_policy_${name}`)),
    );
    t.is(its.length, 1, name);
    t.regex(its[0].description, /\.$/, name);
  }
});
