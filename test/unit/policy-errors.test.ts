import test from "ava";
import { closest } from "../../src/closest.ts";
import {
  ArgumentError,
  DispatchPolicyError,
  PayloadError,
  PolicyDefinitionError,
  RemovalError,
  SchemaVersionError,
  UnknownPolicyError,
  UnwrappedTaskError,
} from "../../src/errors.ts";

test("every error is ours, has a name and a code, and keeps its cause", (t) => {
  const cause = new Error("why");
  const errors: [DispatchPolicyError, string, string][] = [
    [new ArgumentError("m", { cause }), "ArgumentError", "invalid_argument"],
    [new PolicyDefinitionError("m", { cause }), "PolicyDefinitionError", "invalid_policy"],
    [new PayloadError("p", "m", { cause }), "PayloadError", "payload_refused"],
    [new UnknownPolicyError("p", [], { cause }), "UnknownPolicyError", "unknown_policy"],
    [new UnwrappedTaskError("p", ["t"], { cause }), "UnwrappedTaskError", "task_not_wrapped"],
    [
      new SchemaVersionError({ schema: "s", found: 1, expected: 2 }, { cause }),
      "SchemaVersionError",
      "schema_version",
    ],
    [new RemovalError("m", { cause }), "RemovalError", "not_removed"],
  ];
  for (const [error, name, code] of errors) {
    t.true(error instanceof DispatchPolicyError && error instanceof Error);
    t.deepEqual([error.name, error.code, error.cause], [name, code, cause]);
  }
});

test("an unknown policy is told with the known ones", (t) => {
  t.is(
    new UnknownPolicyError("zzz", ["fetch", "send"]).message,
    'unknown policy "zzz" (known policies: fetch, send)',
  );
  t.is(
    new UnknownPolicyError("fech", ["fetch", "send"]).message,
    'unknown policy "fech": did you mean "fetch"? Known policies: fetch, send.',
  );
  t.is(new UnknownPolicyError("fetch", []).message, 'unknown policy "fetch" (there are no policies)');
});

test("a database that is missing, older or newer is told apart", (t) => {
  const message = (found: number | null) =>
    new SchemaVersionError({ schema: "dispatch_policy", found, expected: 5 }).message;
  t.regex(
    message(null),
    /^database schema "dispatch_policy" has not been set up for this release, this package needs migration 5: run .*migrate", .*as the role/,
  );
  t.regex(message(3), /is at migration 3, this package needs migration 5: run .*migrate", .*as the role/);
  t.regex(message(6), /is at migration 6, this package knows 5 at most: upgrade/);
});

test("the closest key", (t) => {
  const keys = ["rate", "per", "burst", "initialMax", "admissionBatchSize"];
  t.is(closest("bust", keys), "burst");
  t.is(closest("RATE", keys), "rate");
  t.is(closest("initial_max", keys), "initialMax");
  t.is(closest("admisionBatchSise", keys), "admissionBatchSize");
  t.is(closest("window", keys), undefined);
  t.is(closest("", keys), undefined);
  t.is(closest("rate", []), undefined);
});
