import test from "ava";
import { PayloadError } from "../../src/errors.ts";
import { definePolicy, resolveJob } from "../../src/policy/policy.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests pass what the types forbid
type Anything = any;
const by = (partitionBy: Anything) =>
  definePolicy("fetch", { partitionBy, context: (payload: Anything) => payload ?? {} });
const keyOf = (partitionBy: Anything, payload: unknown): string =>
  resolveJob(by(partitionBy), payload, { task: "fetch" }).partition;
const keyFor = (key: unknown): string => keyOf((ctx: Anything) => ctx.key, { key });

test("strings stay, numbers become text", (t) => {
  t.is(keyFor("a:b"), "a:b");
  t.is(keyFor(""), "");
  t.is(keyFor("quote's \n; drop table 😀"), "quote's \n; drop table 😀");
  t.is(keyFor(5), keyFor("5"));
  t.is(keyFor(-0), "0");
  t.is(keyFor(0.1), "0.1");
});

test("numbers read as PostgreSQL's jsonb writes them, never with an exponent", (t) => {
  t.is(keyFor(-1.25e14), "-125000000000000");
  t.is(keyFor(1e-7), "0.0000001");
  t.is(keyFor(-1.5e-9), "-0.0000000015");
  t.is(keyFor(Number.MAX_SAFE_INTEGER), "9007199254740991");
});

test("a path leads into the payload", (t) => {
  t.is(keyOf("host", { host: "h" }), "h");
  t.is(keyOf("a.b.c", { a: { b: { c: 7 } } }), "7");
  t.is(keyOf("list.1", { list: ["x", "y"] }), "y");
  t.is(keyOf(["host"], { host: "h" }), "h");
});

test("several paths make the JSON array of the texts, which nothing can be mistaken for", (t) => {
  const paths = ["a", "b.c"];
  t.is(keyOf(paths, { a: "x", b: { c: 7 } }), '["x","7"]');
  t.not(keyOf(paths, { a: "x:y", b: { c: "z" } }), keyOf(paths, { a: "x", b: { c: "y:z" } }));
  t.not(keyOf(paths, { a: '","', b: { c: "" } }), keyOf(paths, { a: "", b: { c: '","' } }));
});

test("paths lead into the payload as it is stored, functions see the parsed one", (t) => {
  const lower = {
    "~standard": {
      version: 1 as const,
      vendor: "test",
      validate: (payload: unknown) => ({ value: { host: (payload as { host: string }).host.toLowerCase() } }),
    },
  };
  const policy = (partitionBy: Anything) =>
    definePolicy("fetch", { payload: lower, context: (parsed: Anything) => parsed, partitionBy });
  const payload = { host: "EXAMPLE" };
  t.is(resolveJob(policy("host"), payload, { task: "fetch" }).partition, "EXAMPLE");
  t.is(
    resolveJob(
      policy((ctx: Anything) => ctx.host),
      payload,
      { task: "fetch" },
    ).partition,
    "example",
  );
  t.deepEqual(payload, { host: "EXAMPLE" });
});

test("1,024 bytes are allowed, in whatever characters", (t) => {
  for (const key of ["a".repeat(1024), "é".repeat(512), "😀".repeat(256)]) t.is(keyFor(key), key);
});

const rounded = (got: string) =>
  `partitionBy must give an integer up to 2^53 - 1 or at most 15 digits, because JavaScript rounds others, got ${got}: make it a text`;

const REFUSED: [unknown, string][] = [
  [null, "partitionBy must give a string or a finite number, got null"],
  [undefined, "partitionBy must give a string or a finite number, got undefined"],
  [true, "partitionBy must give a string or a finite number, got true"],
  [{ id: 1 }, "partitionBy must give a string or a finite number, got an object"],
  ["a\0b", 'partitionBy must give a text without NUL and without halves of surrogate pairs, got "a\\u0000b"'],
  ["\udc00", 'partitionBy must give a text without NUL and without halves of surrogate pairs, got "\\udc00"'],
  ["a".repeat(1025), `partitionBy must give at most 1024 bytes, got 1025: "${"a".repeat(60)}…"`],
  ["é".repeat(513), `partitionBy must give at most 1024 bytes, got 1026: "${"é".repeat(60)}…"`],
  [Number.NaN, "partitionBy must give a string or a finite number, got NaN"],
  [Number.POSITIVE_INFINITY, "partitionBy must give a string or a finite number, got Infinity"],
  [2 ** 53, rounded("9007199254740992")],
  [-1e21, rounded("-1000000000000000000000")],
  [Number("1234567890123456789"), rounded("1234567890123456800")],
  [0.1 + 0.2, rounded("0.30000000000000004")],
  [5n, "partitionBy must give a string or a finite number, got the bigint 5n"],
];

for (const [key, message] of REFUSED) {
  test(`no key: ${message}`, (t) => {
    const error = t.throws(
      () =>
        resolveJob(
          definePolicy("fetch", { context: () => ({}), partitionBy: () => key as Anything }),
          {},
          { task: "fetch" },
        ),
      {
        instanceOf: PayloadError,
      },
    );
    t.is(error.message, `policy "fetch": ${message}`);
  });
}

const NO_PATH: [Anything, unknown, string][] = [
  ["toString", {}, 'partitionBy "toString" must give a string or a finite number, got undefined'],
  ["a.b", { a: {} }, 'partitionBy "a.b" must give a string or a finite number, got undefined'],
  ["a.b", { a: null }, 'partitionBy "a.b" must give a string or a finite number, got undefined'],
  ["a", { a: null }, 'partitionBy "a" must give a string or a finite number, got null'],
  ["a", null, 'partitionBy "a" must give a string or a finite number, got undefined'],
  ["a", "text", 'partitionBy "a" must give a string or a finite number, got undefined'],
  ["a.length", { a: [1] }, 'partitionBy "a.length" must give a string or a finite number, got undefined'],
  [
    "constructor.name",
    {},
    'partitionBy "constructor.name" must give a string or a finite number, got undefined',
  ],
  [["a", "b"], { a: 1, b: false }, 'partitionBy "b" must give a string or a finite number, got false'],
];

for (const [path, payload, message] of NO_PATH) {
  test(`path that leads nowhere: ${JSON.stringify([path, payload])}`, (t) => {
    const policy = definePolicy("fetch", { partitionBy: path });
    t.throws(() => resolveJob(policy, payload, { task: "fetch" }), { message: `policy "fetch": ${message}` });
  });
}

test("several long values together may not be longer than one", (t) => {
  const policy = definePolicy("fetch", { partitionBy: ["a", "b"] });
  t.throws(() => resolveJob(policy, { a: "x".repeat(600), b: "y".repeat(600) }, { task: "fetch" }), {
    message: /^policy "fetch": partitionBy must give at most 1024 bytes, got 1207: /,
  });
});

test("a context with an integer that may have been rounded is refused, because a key may be made of it", (t) => {
  t.throws(() => keyOf((ctx: Anything) => `tenant:${ctx.ids[1]}`, { ids: [1, 2 ** 53] }), {
    message:
      'policy "fetch": context must return JSON values: context.ids[1] is 9007199254740992, which JavaScript may have rounded: make it a text',
  });
});

test("a scope's key is refused as a partition's", (t) => {
  const policy = definePolicy("fetch", {
    partitionBy: "key",
    gates: ({ concurrency }) => [concurrency({ name: "account", scope: () => 0.1 + 0.2, max: 1 })],
  });
  t.throws(() => resolveJob(policy, { key: "k" }, { task: "fetch" }), {
    message:
      /^policy "fetch": scope of gate "account" must give .* got 0\.30000000000000004: make it a text$/,
  });
});
