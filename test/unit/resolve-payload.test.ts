import test from "ava";
import type { JobHelpers } from "graphile-worker";
import { z } from "zod";
import { z as z3 } from "zod3";
import { PayloadError, UnwrappedTaskError } from "../../src/errors.ts";
import { definePolicy, resolveJob } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const spec = { task: "fetch" };
const payload = z.object({ host: z.string(), ports: z.array(z.number()).default([80]) });
const fetch = definePolicy("fetch", { payload, context: ({ ports }) => ({ ports }), partitionBy: "host" });

/** A schema whose validate is `validate`. */
const schema = (validate: (value: unknown) => unknown) => ({
  "~standard": { version: 1 as const, vendor: "test", validate },
});
const answering = (validate: (value: unknown) => unknown) =>
  definePolicy("fetch", { payload: schema(validate) as Anything, partitionBy: "host" });

test("context sees what the schema gives back", (t) => {
  t.deepEqual(resolveJob(fetch, { host: "h" }, spec).context, { ports: [80] });
});

test("a payload that fails its schema is refused, each issue with its place", (t) => {
  const error = t.throws(() => resolveJob(fetch, { ports: [1, "2"] }, spec), { instanceOf: PayloadError });
  t.regex(
    error.message,
    /^policy "fetch": the payload fails its schema: host: Invalid input.*; ports\.1: Invalid input/,
  );
  t.deepEqual(
    error.issues.map((issue) => issue.path),
    [["host"], ["ports", 1]],
  );
});

test("zod 3.25 works alike", (t) => {
  const policy = definePolicy("fetch", {
    payload: z3.object({ host: z3.string(), n: z3.number().default(2) }),
    context: ({ n }) => ({ n }),
    partitionBy: "host",
  });
  t.deepEqual(resolveJob(policy, { host: "h" }, spec).context, { n: 2 });
  t.throws(() => resolveJob(policy, {}, spec), {
    message: 'policy "fetch": the payload fails its schema: host: Required',
  });
});

test("a long list of issues is cut in the message, not in the error", (t) => {
  const issues = Array.from({ length: 8 }, (_, index) => ({
    message: `m${index}`,
    path: [{ key: "list" }, index],
  }));
  const error = t.throws(
    () =>
      resolveJob(
        answering(() => ({ issues })),
        {},
        spec,
      ),
    { instanceOf: PayloadError },
  );
  t.true(error.message.endsWith("list.4: m4; and 3 more"));
  t.is(error.issues.length, 8);
});

test("an asynchronous schema is refused, and its rejection does not end the process", (t) => {
  const message = /^policy "fetch": its payload schema is asynchronous \(it returned a promise\)/;
  t.throws(
    () =>
      resolveJob(
        answering(() => Promise.reject(new Error("late"))),
        {},
        spec,
      ),
    { instanceOf: PayloadError, message },
  );
  const asynchronous = definePolicy("fetch", {
    payload: z.object({ host: z.string() }).refine(async () => true),
    partitionBy: "host",
  });
  t.throws(() => resolveJob(asynchronous, { host: "h" }, spec), { instanceOf: PayloadError, message });
});

test("a schema that throws is named, with what it threw as the cause", (t) => {
  const cause = new Error("boom");
  const policy = answering(() => {
    throw cause;
  });
  const error = t.throws(() => resolveJob(policy, {}, spec), { instanceOf: PayloadError });
  t.is(error.message, 'policy "fetch": its payload schema threw: boom');
  t.is(error.cause, cause);
});

// --- policy.task

const inPolicy = { dispatchPolicy: { policy: "fetch" } } as unknown as JobHelpers;

test("a policy's task gets the parsed payload and the helpers as they are", async (t) => {
  const seen: unknown[] = [];
  const task = fetch.task(async (parsed, helpers) => {
    seen.push(parsed, helpers);
  });
  await task({ host: "h" }, inPolicy);
  t.deepEqual(seen, [{ host: "h", ports: [80] }, inPolicy]);
  t.is(seen[1], inPolicy);
});

test("a policy's task passes on what it returns, as batch jobs need", async (t) => {
  const batch = definePolicy("batch", { partitionBy: "0.host" });
  const results = [Promise.resolve()];
  t.is((await batch.task(() => results as Anything)([{ host: "h" }], inPolicy)) as unknown, results);
});

test("a policy's task refuses to run where no gate would hold", async (t) => {
  const tasks = ["a", "b"];
  const policy = definePolicy("both", { tasks, partitionBy: "host" });
  const error = await t.throwsAsync(async () => policy.task(async () => {})({}, {} as JobHelpers), {
    instanceOf: UnwrappedTaskError,
  });
  t.regex(error.message, /^policy "both": its task ran without the policy\. Add dispatchPolicyPreset\(/);
  t.regex(error.message, /register the task under "a" or "b"$/);
});

test("a policy's task refuses a payload that came in past the schema", async (t) => {
  await t.throwsAsync(async () => fetch.task(async () => t.fail())({ host: 5 }, inPolicy), {
    instanceOf: PayloadError,
    message: /^policy "fetch": the payload fails its schema: host: /,
  });
});
