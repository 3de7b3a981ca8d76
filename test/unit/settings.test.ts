// The preset's options: what is wrong with them is said when they are given.
import test from "ava";
import { ArgumentError, dispatchPolicyPreset } from "../../src/index.ts";

for (const option of ["throughputTarget"]) {
  test(`${option} does nothing, and so is no option: the error lists those there are`, (t) => {
    const error = t.throws(() => dispatchPolicyPreset({ policies: [], [option]: null } as never), {
      instanceOf: ArgumentError,
    });
    t.is(
      error?.message,
      `unknown option "${option}" of dispatchPolicyPreset (known options: policies, schema, enabled, loop, defaults, ` +
        "partitionBatchSize, tickMaxDuration, minTickInterval, loopHeartbeat, workerHeartbeatInterval, " +
        "workerStaleAfter, sweepInterval, partitionInactiveAfter, keepAuditFor, metricsRetention)",
    );
  });
}

test("a misspelt option: the error names the right one", (t) => {
  t.throws(() => dispatchPolicyPreset({ policies: [], sweepIntervall: "1 minute" } as never), {
    instanceOf: ArgumentError,
    message: 'unknown option "sweepIntervall" of dispatchPolicyPreset: did you mean "sweepInterval"?',
  });
});
