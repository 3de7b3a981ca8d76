// Design, section 7: a clear error, and nothing is lost.
import test from "ava";
import { makeWorkerUtils } from "graphile-worker";
import { z } from "zod";
import {
  ArgumentError,
  addPolicyJob,
  addPolicyJobs,
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  type JobSpec,
  makePolicyUtils,
  PayloadError,
  SchemaVersionError,
  throttle,
  UnknownPolicyError,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/engine.ts";
import { payloadTexts } from "../helpers/native.ts";
import { type Ctx, policyOf, type Scenario, scenario, sqlPolicyOf } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

const checked = definePolicy("checked", {
  payload: z.object({ tenant: z.string(), size: z.number().positive() }),
  context: (payload) => ({ tenant: payload.tenant }),
  partitionBy: (ctx) => ctx.tenant,
});

const anything = async (it: Scenario): Promise<number> => {
  const [row] = await it.rows(`select (select count(*)::int from dispatch_policy.staged_jobs)
    + (select count(*)::int from graphile_worker.jobs) + (select count(*)::int from dispatch_policy.partitions) as n`);
  return row.n;
};

test("a payload that fails its schema stages nothing, by every way to add", async (t) => {
  const it = await scenario(t, checked, { others: [policyOf("p")] });
  const good = { tenant: "a", size: 1 };
  const bad = { tenant: "a", size: -1 };
  const add = [
    () => it.utils.addJob(checked, bad),
    () => it.utils.addJob("checked", bad),
    () => it.utils.addJobs([good, bad].map((payload) => ({ identifier: "checked", payload }))),
    () =>
      it.utils.addJobs([
        { identifier: "plain", payload: {} },
        { identifier: "p", payload: { key: "k" } },
        { identifier: "checked", payload: bad },
      ]),
    () => addPolicyJob(it.pool, checked, bad),
    () =>
      addPolicyJobs(
        it.pool,
        [good, bad, good].map((payload) => ({ policy: checked, payload })),
      ),
  ];
  for (const one of add) {
    const error = await t.throwsAsync(one, { instanceOf: PayloadError, message: /checked.*size/s });
    t.is(error.issues.length, 1);
  }
  t.is(await anything(it), 0);
  await it.utils.addJob(checked, good);
  t.is(await it.staged(), 1);
});

test("a refused job leaves the caller's transaction usable, and rolls back with it", async (t) => {
  const it = await scenario(t, checked);
  const client = await it.transaction();
  await addPolicyJob(client, checked, { tenant: "a", size: 1 });
  await t.throwsAsync(addPolicyJob(client, checked, { tenant: "a", size: -1 }), { instanceOf: PayloadError });
  await addPolicyJob(client, checked, { tenant: "a", size: 2 });
  t.is(await it.staged(), 0);
  await client.query("commit");
  t.is(await it.staged(), 2);
});

test("a context function that throws: the error names the policy, and has the cause", async (t) => {
  const cause = new Error("no such tenant");
  const it = await scenario(t, {
    context: () => {
      throw cause;
    },
  });
  const error = await t.throwsAsync(it.stage("2@k"), {
    instanceOf: PayloadError,
    message: /"p".*context.*no such tenant/,
  });
  t.is(error.cause, cause);
  t.is(await anything(it), 0);
});

for (const [what, words] of [
  [
    "partitionBy",
    {
      partitionBy: () => {
        throw new Error("broken");
      },
    },
  ],
  [
    "shardBy",
    {
      shardBy: () => {
        throw new Error("broken");
      },
    },
  ],
  [
    "cost",
    {
      cost: () => {
        throw new Error("broken");
      },
    },
  ],
  [
    "a gate's value",
    {
      gates: [
        throttle<Ctx>({
          rate: () => {
            throw new Error("broken");
          },
          per: "1 second",
        }),
      ],
    },
  ],
  [
    "a gate's scope",
    {
      gates: [
        concurrency<Ctx>({
          scope: () => {
            throw new Error("broken");
          },
          max: 1,
        }),
      ],
    },
  ],
] as const) {
  test(`${what} that throws stages nothing`, async (t) => {
    const it = await scenario(t, words as object);
    await t.throwsAsync(it.stage("2@k"), { instanceOf: PayloadError, message: /"p".*broken/ });
    t.is(await anything(it), 0);
  });
}

test("an unknown policy in an operator's call: an error that lists the known ones", async (t) => {
  const it = await scenario(t, {}, { others: [policyOf("zebra")] });
  const policy = "quite_different";
  for (const [verb, call] of Object.entries({
    pause: () => it.utils.pause({ policy }),
    "pause of a partition": () => it.utils.pause({ policy, partition: "k" }),
    resume: () => it.utils.resume({ policy }),
    hold: () => it.utils.hold({ policy, partition: "k", forMs: 1000 }),
    admit: () => it.utils.admit({ policy, count: 1 }),
    move: () => it.utils.move({ policy, partition: "k", toPartition: "l" }),
    remove: () => it.utils.remove({ policy }),
    cancel: () => it.utils.cancel({ policy }),
    unstage: () => it.utils.unstage({ policy }),
    setLimit: () => it.utils.setLimit({ policy, gate: "concurrency", set: { max: 1 } }),
    clearLimit: () => it.utils.clearLimit({ policy, gate: "concurrency" }),
    take: () => it.utils.take({ policy, gate: "throttle" }),
    sync: () => it.utils.sync({ policy, gate: "throttle", remaining: 1 }),
    disable: () => it.utils.disable({ policy }),
    tick: () => it.utils.tick({ policy }),
    status: () => it.utils.status({ policy }),
    limits: () => it.utils.limits({ policy }),
    partitions: () => it.utils.partitions({ policy }),
    explain: () => it.utils.explain({ policy, partition: "k" }),
    "a dry run of admit": () => it.utils.admit({ policy, drain: true, dryRun: true }),
    "a dry run of remove": () => it.utils.remove({ policy, dryRun: true }),
  })) {
    const error = await t.throwsAsync(call, undefined, verb);
    t.regex(error.message, /quite_different.*p.*zebra/s, verb);
    t.true(error instanceof UnknownPolicyError, verb);
  }
  for (const call of [
    "pause($1)",
    "tick($1)",
    "admit($1, 1)",
    "remove(policy => $1)",
    "cancel(policy => $1)",
    "export($1)",
    "unstage($1)",
  ])
    await t.throwsAsync(it.rows(`select * from dispatch_policy.${call}`, [policy]), {
      message: /unknown.*'p'.*'zebra'/,
    });
});

test("an operator's call that is wrong otherwise says what is right", async (t) => {
  const gates = [concurrency<Ctx>({ max: 1 }), throttle<Ctx>({ rate: 1, per: "1 second" })];
  const it = await scenario(t, { gates });
  const limit = { policy: "p", gate: "concurrency" };
  for (const [call, message] of [
    [() => it.utils.pause({} as never), /policy/],
    [() => it.utils.pause({ policy: undefined } as never), /policy/],
    [() => it.utils.setLimit({ ...limit, gate: "concurency", set: { max: 1 } }), /concurrency/],
    [() => it.utils.setLimit({ ...limit, set: { rate: 1 } }), /max/],
    [() => it.utils.setLimit({ ...limit, set: { max: -1 } }), /max/],
    [() => it.utils.setLimit({ ...limit, set: {} }), /set/],
    [() => it.utils.setLimit({ ...limit, gate: "throttle", set: { rate: 1e13 } }), /rate is 10000000000000/],
    [() => it.utils.setLimit({ ...limit, gate: "throttle", set: { burst: 1e13 } }), /burst is .*, expected/],
    [
      () => it.utils.take({ ...limit, gate: "throttle", key: "k", cost: 1e13 }),
      /take: cost must be .*, got 10000000000000$/,
    ],
    [() => it.utils.setLimit({ ...limit, set: { max: 1 }, from: new Date(2), until: new Date(1) }), /from/],
    [() => it.utils.take({ ...limit, gate: "concurrency", key: "k" }), /throttle/],
    [
      () => it.utils.sync({ ...limit, key: "k", remaining: 1 }),
      /^sync: gate 'concurrency' .* is no throttle/,
    ],
    [
      () => it.utils.sync({ ...limit, gate: "throttle", remaining: 1 }),
      /^sync: key is null, expected a scope key/,
    ],
    [
      () => it.utils.sync({ ...limit, gate: "throttle", remaining: -1 }),
      /^sync: remaining must be .*, got -1$/,
    ],
    [
      () => it.utils.sync({ ...limit, gate: "throttle", remaining: 1, resetAt: 5 as never }),
      /^sync: resetAt must be a valid Date, got 5$/,
    ],
    [() => it.utils.hold({ policy: "p", partition: "k", forMs: -1 }), /forMs/],
    [
      () => it.utils.hold({ policy: "p", partition: "k", until: new Date(0) }),
      /^hold: until is 1970-.*, expected a time to come: by the database's clock it is 20.*; to end a hold, resume/,
    ],
    [
      () => it.utils.pause({ policy: "p", until: new Date(0) }),
      /^pause: until is 1970-.*, expected a time to come: by the database's clock it is 20.*; to end a pause, call resume/,
    ],
    [() => it.utils.pause({ policy: "p", partition: "k", until: new Date(0) }), /^pause: until is 1970-/],
    [() => it.utils.tick({ now: new Date(Number.NaN) }), /now/],
    [() => it.utils.remove({} as never), /ids/],
    [() => it.utils.cancel({} as never), /cancel: expected { ids } or { policy, partition\? }, got neither/],
    [() => it.utils.unstage({} as never), /unstage: policy/],
    [() => it.utils.uninstall({ force: "yes" } as never), /uninstall: force/],
    [() => it.utils.remove({ ids: ["abc"] }), /remove: ids must be an array of job ids/],
    [
      () => it.utils.pause({ policy: "p", partition: null } as never),
      /pause: partition must be a string.* got null/,
    ],
    [() => it.utils.pause({ policy: "p", until: new Date(Number.NaN) }), /pause: until must be a valid Date/],
    [() => it.utils.pause({ policy: "p", partitions: ["k"] } as never), /"partitions" of pause.*"partition"/],
    [() => it.utils.resume({ policy: "p", until: new Date() } as never), /"until" of resume/],
    [
      () => it.utils.hold({ policy: "p", partition: "k" } as never),
      /hold: expected .*until undefined, forMs undefined/,
    ],
    [() => it.utils.hold({ policy: "p", forMs: 1 } as never), /hold: partition is missing/],
    [() => it.utils.admit({ policy: "p" } as never), /admit: expected { count } or { drain: true }/],
    [() => it.utils.admit({ policy: "p", drain: false } as never), /got count undefined, drain false/],
    [() => it.utils.admit({ policy: "p", count: 0 }), /admit: count must be a whole number, 1 to/],
    [() => it.utils.admit({ policy: "p", count: 1, drain: true }), /got count 1, drain true/],
    [
      () => it.utils.setLimit({ ...limit, gate: "throttle", set: { per: 60 } } as never),
      /set.per must be a duration .*got 60/,
    ],
    [() => it.utils.setLimit({ ...limit, set: { mx: 1 } } as never), /"mx" of setLimit: set.*"max"/],
    [
      () => it.utils.setLimit({ ...limit, set: { max: 1 }, from: "now" } as never),
      /setLimit: from must be a valid Date, got "now"/,
    ],
    [() => it.utils.clearLimit({ ...limit, set: { max: 1 } } as never), /"set" of clearLimit/],
    [() => it.utils.releaseSlots({ jobId: "abc" }), /releaseSlots: jobId must be a job id, .* got "abc"/],
    [() => it.utils.explain({} as never), /explain: policy is missing/],
    [() => it.utils.explain({ id: "abc" }), /explain: id must be a job id/],
    [() => it.utils.partitions({ limit: 0 }), /partitions: limit must be a whole number/],
    [() => it.utils.tick({ plicy: "p" } as never), /"plicy" of tick.*"policy"/],
    [() => it.utils.status("p" as never), /status must be given an object/],
  ] as [() => Promise<unknown>, RegExp][]) {
    await t.throwsAsync(call, { instanceOf: ArgumentError, message });
  }
  await t.throwsAsync(it.rows(`select dispatch_policy.hold('p', 'k', "for" => '-1 second')`), {
    code: "DPARG",
    message: /hold: until is .*expected a time to come/,
  });
});

test("what Graphile Worker would refuse is not staged", async (t) => {
  const it = await scenario(t);
  for (const [spec, message] of [
    [{ queueName: "q".repeat(129) }, /queueName must be .* at most 128 characters/],
    [{ jobKey: "k".repeat(513) }, /jobKey must be .* at most 512 characters/],
    [{ jobKey: 7 }, /jobKey must be .*got 7/],
    [{ maxAttempts: 0 }, /maxAttempts must be a whole number, 1 to 32767, got 0/],
    [{ priority: 1.5 }, /priority must be a whole number, .* got 1.5/],
    [{ runAt: new Date(Number.NaN) }, /runAt must be a valid Date/],
    [{ runAt: "tomorrow" }, /runAt must be a valid Date, got "tomorrow"/],
    [{ wait: 60 }, /wait must be a duration such as "30 seconds".* got 60/],
    [{ wait: "1 hour", runAt: new Date() }, /runAt and wait both say when it is due.* got wait "1 hour"/],
    [{ flags: "slow" }, /flags must be an array of strings/],
    [{ jobKey: "k", jobKeyMode: "keep" }, /jobKeyMode must be "replace", .* got "keep"/],
    [{ runAfter: new Date() }, /"runAfter" of a job/],
  ] as [JobSpec, RegExp][]) {
    const ways = {
      addPolicyJob: () => addPolicyJob(it.pool, it.own, { key: "k" }, spec),
      addJob: () => it.utils.addJob("p", { key: "k" }, spec),
      addJobs: () => it.utils.addJobs([{ identifier: "p", payload: { key: "k" }, ...spec }] as never),
    };
    for (const [way, add] of Object.entries(ways))
      await t.throwsAsync(add, { instanceOf: ArgumentError, message }, way);
  }
  for (const [argument, message] of [
    ["queue_name => repeat('q', 129)", /a job of p: queue_name has 129 characters, expected at most 128/],
    ["job_key => repeat('k', 513)", /job_key has 513 characters, expected 1 to 512/],
    ["job_key => ''", /job_key has 0 characters/],
    ["max_attempts => 0", /max_attempts is 0, expected 1 to 32767/],
  ] as const)
    await t.throwsAsync(it.rows(`select dispatch_policy.add_job('p', '{"key": "k"}', ${argument})`), {
      message,
    });
  t.is(await anything(it), 0);
  // as Graphile Worker reads them: not given
  await it.utils.addJob("p", { key: "k" }, { queueName: "", jobKey: "" });
  t.is((await it.tick()).admitted, 1);
});

test("two policies of one name or over one task are refused", async (t) => {
  const it = await scenario(t);
  const bad = [
    [policyOf("p"), policyOf("p")],
    [policyOf("p"), policyOf("q", { tasks: ["p"] })],
    [policyOf("x", { tasks: ["a", "b"] }), policyOf("y", { tasks: ["b", "c"] })],
  ];
  for (const policies of bad) {
    await t.throwsAsync(makePolicyUtils({ connectionString: it.url, policies, logger: silent }), {
      instanceOf: ArgumentError,
      message: /two policies/,
    });
    t.throws(() => dispatchPolicyPreset({ policies }), { message: /two policies/ });
  }
});

test("two dispatchPolicyPresets in one tree are refused", async (t) => {
  const it = await scenario(t);
  const preset = { extends: [it.preset, dispatchPolicyPreset({ policies: [policyOf("q")] })] };
  await t.throwsAsync(makeWorkerUtils({ connectionString: it.url, preset, logger: silent }));
});

test("a policy that is gone from the code goes on under its stored limits, and status says orphaned", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 2 })] });
  await it.stage("5@k");
  await it.utils.release();
  const later = await it.makeUtils([policyOf("q")]);
  t.is((await later.tick()).admitted, 2);
  const { policies } = await later.status();
  t.like(
    policies.find((one) => one.policy === "p"),
    { orphaned: true, staged: 3, inFlight: 2 },
  );
  const [job] = await it.inFlight();
  await later.completeJobs([job?.job_id ?? ""]);
  await later.sweep();
  t.is((await later.tick({ policy: "p" })).admitted, 1);
});

test("status says orphaned no longer once a worker has the task", async (t) => {
  const it = await scenario(t);
  const orphaned = async () => (await it.utils.status({ policy: "p" })).policies[0]?.orphaned;
  t.true(await orphaned());
  await it.worker({ tasks: { p: async () => {} } });
  await until("a worker has it", async () => (await orphaned()) === false);
});

test("a database that is newer than the package is left alone, with a clear message", async (t) => {
  const it = await scenario(t);
  await table(it.pool, "migrations").add({ id: 999999, name: "of a later release" });
  const error = await t.throwsAsync(
    makePolicyUtils({ connectionString: it.url, policies: [policyOf("p")], logger: silent }),
    { instanceOf: SchemaVersionError, message: /999999.*upgrade/ },
  );
  t.is(error.found, 999999);
});

test("a connection that is lost: adding fails loudly, and works again afterwards", async (t) => {
  const it = await scenario(t);
  const client = await it.transaction();
  await addPolicyJob(client, it.own, { key: "k" });
  await it.rows(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  await t.throwsAsync(addPolicyJob(client, it.own, { key: "k" }));
  t.is(await it.staged(), 0, "what was not committed is gone");
  await until("the pool has recovered", () =>
    it.stage("1@k").then(
      () => true,
      () => false,
    ),
  );
  t.is(await it.staged(), 1);
});

test("a server that is not there: making utils and adding fail loudly", async (t) => {
  const url = "postgres://postgres@127.0.0.1:1/none";
  await t.throwsAsync(makePolicyUtils({ connectionString: url, policies: [policyOf("p")], logger: silent }));
});

test("a key that is too long, a NUL, a NaN cost, a negative weight: from TypeScript and SQL", async (t) => {
  const it = await scenario(t, policyOf("p"), { others: [sqlPolicyOf("s", {})] });
  for (const payload of [
    { key: "x".repeat(1025) },
    { key: "a\0b" },
    { key: "k", cost: Number.NaN },
    { key: "k", weight: -1 },
  ])
    await t.throwsAsync(it.utils.addJob("p", payload), { instanceOf: PayloadError, message: /"p"/ });
  for (const payload of [
    `{"key": "${"x".repeat(1025)}"}`,
    `{"key": "a\\u0000b"}`,
    `{"key": null}`,
    "[]",
    "3",
  ])
    await t.throwsAsync(it.rows("select dispatch_policy.add_job('s', $1)", [payload]), undefined, payload);
  t.is(await anything(it), 0);
});

test("a database that was never set up: adding says so", async (t) => {
  const { pool } = await testDatabase(t, { migrated: false });
  await t.throwsAsync(addPolicyJob(pool, policyOf("p"), { key: "k" }), { message: /dispatch_policy/ });
});

test("payloads that no policy has to read arrive as by Graphile Worker; those of a policy's tasks are refused", async (t) => {
  const it = await scenario(t, sqlPolicyOf("p"));
  const plain = await makeWorkerUtils({ pgPool: it.pool, logger: silent });
  t.teardown(() => plain.release());
  const odd = [{ text: "a\0b" }, { text: "half \ud83d" }, [{ "\0": "\udc00" }], "\0", null, undefined, 5, []];
  for (const payload of odd) {
    await plain.addJob("native", payload);
    await it.utils.addJob("one", payload);
    await it.utils.addJobs([
      { identifier: "many", payload },
      { identifier: "p", payload: { key: "k" } },
      { identifier: "many", payload: { after: 1 } },
    ]);
    await it.utils.addJob("deduped", payload, {
      jobKey: `${odd.indexOf(payload)}`,
      jobKeyMode: "unsafe_dedupe",
    });
    await it.rows("select dispatch_policy.add_job('sql', $1)", [JSON.stringify(payload)]);
  }
  const payloadsOf = async (task: string) => {
    const jobs = await it.rows("select id from graphile_worker.jobs where task_identifier = $1", [task]);
    const ids = jobs.map(({ id }) => id);
    return (await payloadTexts(it.pool, ids)).filter((text) => text !== '{"after":1}');
  };
  const native = await payloadsOf("native");
  t.is(native.length, odd.length);
  for (const task of ["one", "many", "deduped"]) t.deepEqual(await payloadsOf(task), native, task);
  t.deepEqual((await payloadsOf("sql")).slice(0, 4), native.slice(0, 4));
  t.is(await it.staged(), odd.length);

  for (const bad of [
    { key: "k", text: "a\0b" },
    { key: "k", text: "half \ud83d" },
  ]) {
    const message = /a payload has \\u0000 or half of a surrogate pair/;
    await t.throwsAsync(it.utils.addJob("p", bad as never), { instanceOf: ArgumentError, message });
    await t.throwsAsync(addPolicyJob(it.pool, it.own, bad as never), { instanceOf: ArgumentError, message });
    const specs = [
      { identifier: "one", payload: {} },
      { identifier: "p", payload: bad },
    ];
    await t.throwsAsync(it.utils.addJobs(specs), { instanceOf: ArgumentError, message });
  }
  t.is(await it.staged(), odd.length);
});
