import test from "ava";
import { Logger } from "graphile-worker";
import { makeFailureLog } from "../../src/failure-log.ts";

test("a failure is told once of each kind, and so is its end", (t) => {
  const lines: string[] = [];
  const logger = new Logger(() => (level, message) => void lines.push(`${level}: ${message}`));
  const failures = makeFailureLog(logger, "Heartbeat failed, trying again", "Heartbeats work");
  failures.succeeded();
  for (const ms of [5000, 10_000]) failures.failed(new Error(`no answer within ${ms} ms`));
  failures.failed(new Error("permission denied"));
  failures.succeeded();
  failures.succeeded();
  failures.failed(new Error("no answer within 5000 ms"));
  failures.succeeded();
  t.deepEqual(lines, [
    "warning: Heartbeat failed, trying again: no answer within 5000 ms",
    "debug: Heartbeat failed, trying again: no answer within 10000 ms",
    "warning: Heartbeat failed, trying again: permission denied",
    "info: Heartbeats work again, after 3 failures in 0 s",
    "warning: Heartbeat failed, trying again: no answer within 5000 ms",
  ]);
});
