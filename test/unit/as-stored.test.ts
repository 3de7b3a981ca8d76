import test from "ava";
import { asStored } from "../../src/checks/payload-flaw.ts";

const PLAIN: readonly unknown[] = [
  null,
  "",
  "a",
  0,
  1.5,
  true,
  [],
  {},
  [[1, { a: [] }]],
  { a: null, b: { c: "x" } },
];
class Point {
  x = 1;
}
const LIVE: readonly (readonly [live: unknown, stored: unknown])[] = [
  [-0, 0],
  [Number.POSITIVE_INFINITY, null],
  [undefined, undefined],
  [() => 1, undefined],
  [new Date(0), "1970-01-01T00:00:00.000Z"],
  [{ a: undefined }, {}],
  [[undefined], [null]],
  [new Array(2), [null, null]],
  [Object.assign([1], { more: 2 }), [1]],
  [Object.setPrototypeOf([1, 2], class extends Array {}.prototype), [1, 2]],
  [Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
  [new Point(), { x: 1 }],
  [{ a: { toJSON: () => [1] } }, { a: [1] }],
  [new Uint8Array(2), { 0: 0, 1: 0 }],
  [/x/, {}],
];

test("JSON values stay the same values", (t) => {
  for (const value of PLAIN) t.is(asStored(value), value);
});

test("other values become what JSON stores", (t) => {
  for (const [live, stored] of LIVE) {
    const got = asStored({ live });
    t.deepEqual(got, stored === undefined ? {} : { live: stored });
    t.deepEqual(asStored(live), stored);
    t.deepEqual(asStored(got), got);
  }
});
