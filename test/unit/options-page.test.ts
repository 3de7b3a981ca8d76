// docs/options.md: it is what the docstrings give, and the defaults that they state are those of the code.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import {
  GATE,
  GATES,
  JOB,
  optionsPage,
  POLICY,
  POLICY_JOB,
  PRESET,
  VARIABLES,
} from "../../scripts/docs/options.ts";
import { literal } from "../../scripts/docs/stated.ts";
import { type Duration, durationMs } from "../../src/duration.ts";
import { gateFactories } from "../../src/gates/index.ts";
import { readDeclaration } from "../../src/policy/declaration.ts";
import { definePolicy, resolveJob } from "../../src/policy/policy.ts";
import { DEFAULT_SCHEMA, readSettings } from "../../src/settings.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

interface Stated {
  readonly name: string;
  readonly default: string | undefined;
}

/** The defaults that are stated as values, by option. */
function stated(members: readonly Stated[]): Record<string, unknown> {
  return Object.fromEntries(
    members
      .map((member) => [member.name, literal(member.default)] as const)
      .filter(([, value]) => value !== undefined),
  );
}

test("the page is what npm run docs writes", (t) => {
  t.is(readFileSync(`${ROOT}docs/options.md`, "utf8"), optionsPage(), "run: npm run docs");
});

test("every option says what it means, and has a default or is required", (t) => {
  const all = [PRESET, POLICY, POLICY_JOB, GATE, JOB, ...GATES.map(({ members }) => members)].flat();
  const mute = all.filter((option) => !option.meaning || !(option.required || option.default));
  t.deepEqual(
    mute.map(({ name }) => name),
    [],
  );
});

test("the preset's stated defaults are those of the code", (t) => {
  const settings = readSettings({ policies: [] });
  const { loop, defaults } = settings;
  const durations = PRESET.filter(({ name, type }) => type === "Duration" && !name.includes("."));
  for (const { name, default: fallback } of durations)
    t.is(durationMs(literal(fallback) as Duration), settings[`${name}Ms` as "sweepIntervalMs"], name);
  const {
    "defaults.halfLife": halfLife,
    "defaults.ahead": ahead,
    ...others
  } = stated(PRESET.filter((option) => !durations.includes(option)));
  t.is(durationMs(halfLife as Duration) / 1000, defaults.halfLifeSeconds);
  t.deepEqual(defaults.ahead, { jobs: null, seconds: durationMs(ahead as Duration) / 1000 });
  t.deepEqual(others, {
    enabled: settings.enabled,
    loop: loop !== null,
    "defaults.tickAdmissionBudget": defaults.tickAdmissionBudget,
    "defaults.admissionBatchSize": defaults.admissionBatchSize,
    partitionBatchSize: settings.partitionBatchSize,
  });
  t.true(PRESET.find(({ name }) => name === "schema")?.default?.includes(JSON.stringify(DEFAULT_SCHEMA)));
});

test("a policy's stated defaults are those of the code", (t) => {
  const bare = readDeclaration("x", { partitionBy: "a", maxPending: { partition: 1 } });
  const policy = definePolicy("x", { partitionBy: "a" });
  t.deepEqual(stated(POLICY), {
    shardBy: resolveJob(policy, { a: "1" }, { task: "x" }).shard,
    weight: bare.weight,
    cost: bare.cost,
    "fairness.by": bare.fairBy,
    retries: bare.retries,
    unmanaged: bare.unmanaged,
    "maxPending.whenFull": bare.maxPending?.whenFull,
    "maxPending.strict": bare.maxPending?.strict,
    whenBusy: bare.whenBusy,
    whenRunning: bare.cancelsAfterSeconds === null ? "keep" : "cancel",
    refundAttempt: bare.refundAttempt,
    version: bare.version,
    enabled: bare.enabled,
  });
});

test("every gate is on the page", (t) => {
  t.deepEqual(
    GATES.map(({ factory }) => factory),
    Object.keys(gateFactories),
  );
});

for (const { factory, members, anatomy } of GATES) {
  test(`${factory}: the stated options and defaults are those of the code`, (t) => {
    const { fields } = anatomy;
    t.deepEqual(members.map(({ name }) => name).sort(), Object.keys(fields).sort());
    for (const { name, required, default: fallback } of members) {
      const field = fields[name];
      t.is(required, field?.fallback === undefined, name);
      if (typeof field?.fallback === "number") t.is(literal(fallback), field.fallback, name);
    }
  });
}

test("every option on the page is one that the code knows", (t) => {
  const absent = (members: readonly Stated[]) =>
    Object.fromEntries(
      members.filter(({ name }) => !name.includes(".")).map(({ name }) => [name, undefined]),
    );
  t.notThrows(() => readSettings({ ...absent(PRESET), policies: [] }));
  t.notThrows(() => readDeclaration("x", { ...absent(POLICY), partitionBy: "a", job: absent(POLICY_JOB) }));
});

test("every variable that the code reads is on the page", (t) => {
  const sources = globSync("{src,tasks}/**/*.ts", { cwd: ROOT }).map((file) =>
    readFileSync(ROOT + file, "utf8"),
  );
  const read = sources.flatMap((text) => [...text.matchAll(/process\.env\.(\w+)/g)].map(([, name]) => name));
  t.deepEqual([...new Set(read)].sort(), [...VARIABLES].sort());
});
