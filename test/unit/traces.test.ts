// Without @opentelemetry/api nothing is traced, and nothing fails.
import { registerHooks } from "node:module";
import test from "ava";
import { currentTraceparent, openTelemetry } from "../../src/traces.ts";

const asked: string[] = [];
registerHooks({
  resolve(specifier, context, next) {
    if (specifier !== "@opentelemetry/api") return next(specifier, context);
    asked.push(specifier);
    throw Object.assign(new Error(`Cannot find module '${specifier}'`), { code: "MODULE_NOT_FOUND" });
  },
});

test("a process without the API has no trace context, and looks for the API once", (t) => {
  t.is(currentTraceparent(), undefined);
  t.is(openTelemetry(), null);
  t.deepEqual(asked, ["@opentelemetry/api"]);
});
