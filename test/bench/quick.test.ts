// The benchmarks at their smallest: that they run and say what they should. Nothing about pace.
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { atLength } from "../helpers/at-length.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const NAMES = [
  "stage_bulk",
  "stage_single",
  "admit",
  "tick_backlog",
  "tick_idle_partitions",
  "e2e_default",
  "e2e_tuned",
  "slot_turnaround",
  "slot_turnaround_shared",
  "latency_idle",
  "turn_cost",
  "turn_cost_shared",
  "add_cost",
  "wait_100",
  "wait_200",
  "wait_400",
];

function bench(...args: string[]) {
  return promisify(execFile)(process.execPath, ["bench/main.ts", ...args], { cwd: ROOT, timeout: 240_000 });
}

/** What a run at the smallest sizes prints, and what it writes. */
async function smallest(t: ExecutionContext, ...args: string[]) {
  t.timeout(300_000);
  const folder = mkdtempSync(path.join(os.tmpdir(), "bench-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, "figures.json");
  const { stdout } = await bench(...args, "--sizes", "smallest", "--json", file);
  return { stdout, ...JSON.parse(readFileSync(file, "utf8")) };
}

/** Together they take a minute of a processor. */

test("every ratio is measured, printed and written", async (t) => {
  const { stdout, ratios, figures } = await smallest(t);
  t.deepEqual(Object.keys(ratios), NAMES);
  for (const name of NAMES) {
    t.true(Number.isFinite(ratios[name]) && ratios[name] > 0, `${name}: ${ratios[name]}`);
    t.is(figures[name].ratio.median, ratios[name]);
    t.regex(stdout, new RegExp(`^${name} `, "m"));
  }
  t.is(figures.flood_routing.pairs.subject.length, 3);
  t.regex(stdout, /^flood_routing /m);
  t.is(figures.environment.node, process.versions.node);
});

atLength("load is raised until it is too much, and a part of that goes on for a while", async (t) => {
  const { stdout, figures } = await smallest(t, "--soak");
  const { soak } = figures;
  t.true(soak.knee >= 20);
  t.is(soak.minutes.length, 2);
  for (const { tables, memory } of soak.minutes) t.true(tables > 0 && memory > 0);
  t.regex(stdout, /^minute /m);
});

atLength("tenants of long and of short jobs have their shares, by jobs and by work", async (t) => {
  const { stdout, figures } = await smallest(t, "--fairness");
  const { fairness } = figures;
  for (const by of ["jobs", "work"]) {
    const [long, short] = fairness[by];
    t.true(long.jobs > 0 && short.jobs > 0);
    t.true(Math.abs(long.share + short.share - 1) < 1e-9);
  }
  t.regex(stdout, /^work +short /m);
});

atLength(
  "a quiet, a heavy and a double tenant's jobs start beside others, and how soon is measured",
  async (t) => {
    const { stdout, figures } = await smallest(t, "--ahead");
    const { found, crowds, verdicts } = figures.ahead;
    t.is(found.length, 1);
    t.true(found[0].pace > 0 && found[0].waits.length === 2 && found[0].share > 0);
    t.true(Number.isFinite(found[0].ramp));
    t.deepEqual(Object.keys(verdicts.quiet[0]), ["beyond", "share", "ramp"]);
    t.is(verdicts.quiet[0].beyond, found[0].beyond[1] <= 500);
    t.regex(stdout, /^5\.00 .* (met|missed) .* (met|missed) .* (met|missed)$/m);
    t.deepEqual(
      crowds.map(({ who }: { who: string }) => who),
      ["had a job", "fresh", "due at one time"],
    );
    for (const { heavy, heavyBeyond } of crowds) t.true(heavy.length === 2 && heavyBeyond.length === 2);
    t.is(crowds[0].quietBeyond.length, 2);
    t.regex(stdout, /^5\.00 +had a job .* (met|missed) .* (met|missed)$/m);
    t.regex(stdout, /^5\.00 +due at one time .* - .* (met|missed)$/m);
  },
);

atLength("starts are held against what explain said", async (t) => {
  const { stdout, figures } = await smallest(t, "--estimate");
  const { found, verdicts } = figures.estimate;
  t.is(found.length, 5);
  for (const { explained, estimated, without } of found) {
    const unknown = Object.values<number>(without).reduce((sum, n) => sum + n, 0);
    t.is(estimated + unknown, explained); // on a slow machine all jobs may have started before one is explained
  }
  t.deepEqual(Object.keys(verdicts[0]), ["inside", "narrow"]);
  t.regex(stdout, /^own throttle .* (met|missed) .* (met|missed)$/m);
  t.regex(stdout, /^Of all \d+ estimates [\d.]+ % held\.$/m);
  t.true(figures.estimate.held >= 0 && figures.estimate.held <= 1);
});

atLength(
  "twelve causes are planted, and SQL, TypeScript and the command line say the same of each",
  async (t) => {
    const { stdout, figures } = await smallest(t, "--drill");
    const { found } = figures.drill;
    t.deepEqual(
      found.map(({ cause, reason, gate, author }: Record<string, string>) => [cause, reason, gate, author]),
      [
        ["throttled", "throttle_empty", "throttle", null],
        ["own slot full", "concurrency_full", "concurrency", null],
        ["shared slot full", "concurrency_full", "shared", "ana"],
        ["paused", "paused", null, "ana"],
        ["held after a 429", "held", null, "task"],
        ["breaker", "breaker_open", null, "breaker"],
        ["not yet due", "not_due", null, null],
        ["nobody ticking", null, null, null],
        ["budget", "tick_budget", null, null],
        ["ahead", "ahead_full", "ahead", null],
        ["quarantine", "quarantined", null, null],
        ["waiting for its key", "waiting_key", null, null],
      ],
    );
    for (const { cause, differences, sql, ts, cli, ticked } of found) {
      t.deepEqual(differences, []);
      t.true(sql > 0 && ts > 0 && cli > 0, cause);
      t.is(ticked, cause !== "nobody ticking");
    }
    t.regex(stdout, /^throttled +throttle_empty +throttle .* (met|missed)$/m);
    t.regex(stdout, /^SQL, TypeScript and CLI say the same of all 12 causes\.$/m);
  },
);

atLength("jobs beside open transactions are held against the same jobs without them", async (t) => {
  const { stdout, figures } = await smallest(t, "--open");
  const { found } = figures.open;
  t.is(found.length, 7);
  for (const { p50, most, p50Without, ratio, met } of found) {
    t.true(p50 > 0 && p50 <= most && p50Without > 0);
    t.true(Math.abs(ratio - p50 / p50Without) < 1e-9);
    t.is(met, ratio <= 1.5);
  }
  t.regex(stdout, /^a take .* (met|missed)$/m);
});

atLength("what ends while a deployment goes through is held against its target", async (t) => {
  const { stdout, figures } = await smallest(t, "--rollout");
  const { found, verdict, cap } = figures.rollout;
  t.deepEqual(Object.keys(found), ["all governed", "half without the package"]);
  const [governed, mixed] = Object.values<{ ended: number }>(found);
  t.is(verdict.ratio, mixed!.ended / governed!.ended);
  t.is(verdict.target, 0.8);
  t.is(verdict.met, verdict.ratio >= 0.8);
  t.regex(stdout, /target >= 0\.8: (met|missed)$/m);
  t.true(cap.most >= 1 && cap.met === cap.most <= 3);
  t.regex(stdout, /target <= 3: (met|missed)$/m);
});

atLength(
  "more and more workers drain, and connections add with notifications and without, governed and plain",
  async (t) => {
    const { stdout, figures } = await smallest(t, "--scaling");
    const { workers, producers } = figures.scaling;
    for (const side of ["plain", "governed"]) {
      t.deepEqual(
        workers[side].map(({ workers, ms, jobs }: Record<string, number>) => [workers, ms, jobs]),
        [
          [1, 0, 200],
          [1, 5, 200],
          [2, 0, 200],
          [2, 5, 200],
        ],
      );
      for (const { workers: count, pace, connections } of workers[side])
        t.true(pace > 0 && connections >= count && connections <= count * 8, `${connections} connections`);
      t.deepEqual(
        producers[side].map((one: Record<string, number | string>) => [one.connections, one.notifications]),
        ["a worker listens", "nobody listens", "none sent"].map((how) => [3, how]),
      );
      for (const { pace, p50, p95 } of producers[side]) t.true(pace > 0 && p50 > 0 && p50 <= p95);
    }
    t.regex(stdout, /^2 +5 +200 /m);
    t.regex(stdout, /^3 +none sent .* - .* - /m);
  },
);

atLength(
  "jobs that wait in Graphile Worker are adopted, and another task's jobs are timed beside that",
  async (t) => {
    const { stdout, figures } = await smallest(t, "--adoption");
    const { found, verdicts } = figures.adoption;
    t.deepEqual(
      found.map(({ by }: { by: string }) => by),
      ["verb", "killed command", "worker"],
    );
    for (const [n, one] of found.entries()) {
      for (const name of ["seconds", "upAfter", "others", "p50"]) t.true(one[name] > 0, name);
      t.true(one.p50 <= one.p99 && one.p99 <= one.most);
      t.deepEqual(verdicts[n], { moved: one.seconds < 30, othersStarted: one.most < 1000 });
    }
    t.regex(stdout, /^killed command +500 .* (met|missed) +(met|missed)$/m);
    t.regex(stdout, /^verb +500 .* (met|missed) +(met|missed)$/m);
    t.regex(stdout, /^worker +500 .* (met|missed) +(met|missed)$/m);
  },
);

atLength("jobs go through, and what they leave behind is measured", async (t) => {
  const { stdout, figures } = await smallest(t, "--bloat");
  const { bloat } = figures;
  for (const name of ["plain", "governed"]) {
    t.true(bloat[name].pace > 0);
    for (const { size } of Object.values<{ size: number }>(bloat[name].tables)) t.true(size > 0);
  }
  t.regex(stdout, /^governed +\S+ +ours /m);
});

test("a flag or a name that is not known is an error which says so", async (t) => {
  const flag = await t.throwsAsync(bench("--pace"));
  t.regex(flag.message, /Unknown option '--pace'/);
  const name = await t.throwsAsync(bench("--only", "admit,pace"));
  t.regex(name.message, /--only knows stage_bulk, .*; got "pace"/);
});
