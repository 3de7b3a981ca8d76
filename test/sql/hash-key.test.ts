// A key from a whole value is the same in SQL and in JavaScript.
import { createHash } from "node:crypto";
import test from "ava";
import fc from "fast-check";
import { addPolicyJob, definePolicy, hashKey } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { seedOf } from "../helpers/random.ts";
import { scenario } from "../helpers/scenario.ts";

const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: [deep(levels - 1)] });
const HOSTILE: readonly unknown[] = [
  ...[null, true, false, 0, -0, 1, -1, 1.5, 0.1, 0.1 + 0.2, 1e-7, 5e-324, 2 ** 53 - 1],
  ...[
    "",
    "a",
    "é",
    "e\u0301",
    "😀",
    "\u2028\u2029",
    "\u007f\u0001\u001f\b\f\n\r\t",
    '"\\/',
    "\ufeff",
    "1",
    "null",
  ],
  ...[[], {}, [[]], [{}], { a: undefined }, [undefined, Number.NaN], new Date(0)],
  ...[
    { b: 1, aa: [1.5, null] },
    { aa: [1.5, null], b: 1 },
    { "": 1, A: 2, a: 3, Z: 4 },
  ],
  ...[
    { "\uffffa": 1, "😀": 2 },
    { é: 1, e: 2, ê: 3, zz: 4 },
    { __proto: 1, constructor: 2, "a.b": 3 },
  ],
  ...[{ a: { b: { c: [1, [2, [3]]] } } }, deep(40), "x".repeat(100_000)],
];

const hasLargeIntegers = (value: unknown): boolean =>
  typeof value === "number"
    ? Number.isInteger(value) && !Number.isSafeInteger(value)
    : typeof value === "object" && value !== null && Object.values(value).some(hasLargeIntegers);

const bySql = async (
  pool: { query(text: string, values: unknown[]): Promise<{ rows: { key: string }[] }> },
  texts: string[],
) =>
  (
    await pool.query(
      "select dispatch_policy.hash_key(u.t::jsonb) as key from unnest($1::text[]) with ordinality u (t, n) order by n",
      [texts],
    )
  ).rows.map(({ key }) => key);

test("the hash is that of the canonical text", (t) => {
  const text = '{"b": 1, "aa": [1.5, "é", null, true]}';
  const whole = createHash("sha256").update(text).digest("hex");
  t.is(hashKey({ aa: [1.5, "é", null, true], b: 1 }), whole.slice(0, 32));
  t.is(hashKey({ b: 1, aa: [1.5, null] }), "8d111c2e42ec3a65e1cdafaa8597980b");
});

test("hostile values have one key in SQL and in JavaScript", async (t) => {
  const { pool } = await testDatabase(t);
  t.deepEqual(
    await bySql(
      pool,
      HOSTILE.map((value) => JSON.stringify(value)),
    ),
    HOSTILE.map(hashKey),
  );
  t.is(new Set(HOSTILE.map(hashKey)).size, HOSTILE.length - 3, "-0 is 0, and two objects are said twice");
});

test("random values have one key in SQL and in JavaScript", async (t) => {
  const { pool } = await testDatabase(t);
  const values = fc
    .sample(fc.jsonValue({ stringUnit: "binary" }), { numRuns: 2000, seed: seedOf(t) })
    .filter((value) => !JSON.stringify(value).includes("\\u0000") && !hasLargeIntegers(value));
  t.true(values.length > 1000);
  t.deepEqual(
    await bySql(
      pool,
      values.map((value) => JSON.stringify(value)),
    ),
    values.map(hashKey),
  );
});

test("the spelling does not count", async (t) => {
  const { pool } = await testDatabase(t);
  const same = ["[1]", "[1.0]", "[1e0]", "[10e-1]", " [ 1.000 ] "];
  t.deepEqual(new Set(await bySql(pool, same)), new Set([hashKey([1])]));
  const objects = [
    '{"a":1,"b":[1.50]}',
    '{"b":[1.5],"a":1}',
    '{"a":2,"b":[1.5],"a":1}',
    '{"\\u0061":1,"b":[15e-1]}',
  ];
  t.deepEqual(new Set(await bySql(pool, objects)), new Set([hashKey({ a: 1, b: [1.5] })]));
  const other = ["[1, 1]", '["1"]', "[[1]]", "[1.1]", "1", '{"0":1}', "[true]"];
  t.is(new Set(await bySql(pool, [...other, "[1]"])).size, other.length + 1);
});

test("a number is the one that JavaScript reads, and no two large integers have one key", async (t) => {
  const { pool } = await testDatabase(t);
  const read = ["[0.12345678901234567891]", "[-0.0]", "[1.00000000000000000001]"];
  t.deepEqual(
    await bySql(pool, read),
    read.map((text) => hashKey(JSON.parse(text))),
  );
  for (const [text, got] of [
    ["9007199254740993", "9007199254740993"],
    ["-1e21", "-1000000000000000000000"],
    ["1e400", `1${"0".repeat(59)}`],
  ] as const)
    await t.throwsAsync(bySql(pool, [`{"a":[${text}]}`]), {
      code: "DPKEY",
      message: `dispatch_policy: hash_key: the number ${got}, expected an integer up to 2^53 - 1, because JavaScript reads others rounded: write it as a text`,
    });
  t.throws(() => hashKey({ a: [JSON.parse("9007199254740993")] }), {
    code: "invalid_argument",
    message:
      "hashKey: expected integers up to 2^53 - 1, because JavaScript rounds others, got 9007199254740992: make it a text",
  });
});

test("null of SQL has no key, and that of JSON has one", async (t) => {
  const { pool } = await testDatabase(t);
  const { rows } = await pool.query(
    "select dispatch_policy.hash_key(null) as none, dispatch_policy.hash_key('null') as one",
  );
  t.deepEqual(rows, [{ none: null, one: hashKey(null) }]);
});

test("what PostgreSQL cannot store, or JSON cannot hold, is refused", async (t) => {
  const { pool } = await testDatabase(t);
  const circle: Record<string, unknown> = {};
  circle.a = circle;
  const REFUSED: readonly [unknown, string][] = [
    ["a\0b", 'hashKey: expected texts without NUL and without halves of surrogate pairs, got "a\\u0000b"'],
    [{ "\0": 1 }, 'hashKey: expected texts without NUL and without halves of surrogate pairs, got "\\u0000"'],
    [["\ud800"], 'hashKey: expected texts without NUL and without halves of surrogate pairs, got "\\ud800"'],
    [undefined, "hashKey: expected a value that JSON can hold, got undefined"],
    [
      { a: [1n] },
      "hashKey: the value.a[0] is a bigint, expected values that JSON can hold: make it a string or a number",
    ],
    [
      new Map(),
      "hashKey: the value is a Map, expected values that JSON can hold: make it a string or a number",
    ],
    [
      circle,
      "hashKey: the value.a is an object that contains itself, expected values that JSON can hold: make it a string or a number",
    ],
  ];
  for (const [value, message] of REFUSED)
    t.throws(() => hashKey(value), { message, code: "invalid_argument" }, message);
  await t.throwsAsync(bySql(pool, ['"a\\u0000b"']), { code: "22P05" });
  await t.throwsAsync(bySql(pool, ['"\\ud800"']), { code: "22P02" });
});

test("a policy by hashKey and a job from SQL share a partition", async (t) => {
  const policy = definePolicy("p", {
    context: (payload: unknown) => ({ key: hashKey(payload) }),
    partitionBy: (ctx) => ctx.key,
  });
  const it = await scenario(t, policy);
  const { partition } = await addPolicyJob(it.pool, policy, { b: 1.0, a: ["é"] });
  const [job] = await it.rows(
    `select * from dispatch_policy.add_job('p', '{"a": ["\\u00e9"], "b": 1.00}',
       partition_key => dispatch_policy.hash_key('{"a": ["é"], "b": 1.0}'))`,
  );
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { [partition!]: 2 });
  t.is(job.staged, true);
});
