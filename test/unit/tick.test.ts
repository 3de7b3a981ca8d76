// A tick and its loop, with an engine that answers as the test says.
import test from "ava";
import type { WithPgClient } from "graphile-worker";
import { type TickContext, tickOnce } from "../../src/admit/tick.ts";
import { startShardLoop } from "../../src/admit/tick-loop.ts";
import type { Admission, Engine } from "../../src/db/engine.ts";
import { noEvents } from "../../src/events.ts";
import { makeRegistry } from "../../src/policy/registry.ts";
import { silent } from "../helpers/silent.ts";

const nothing: Admission = {
  routed: null,
  ...{
    claimed: 0,
    served: 0,
    admitted: 0,
    denied: {},
    quarantined: 0,
    next_eligible_at: null,
    next_in_ms: null,
  },
  ...{ saturated: null, to_route: false, to_key: false, to_tell: false },
};
const request = { policy: "p", shard: null, now: null, bounded: true };

function contextOf(steps: Partial<Record<"route" | "admit", () => Promise<unknown>>>): TickContext {
  const consumeEvents = async () => ({
    more: false,
    drops: [{ partition: "a", reason: "expired", jobs: 2 }],
  });
  const engine = { route: async () => 0, admit: async () => nothing, consumeEvents, ...steps };
  return {
    withPgClient: ((callback: (client: object) => unknown) => callback({})) as WithPgClient,
    engine: engine as unknown as Engine,
    registry: makeRegistry([]),
    events: noEvents,
    logger: silent,
    partitionBatchSize: 50,
  };
}

for (const step of ["route", "admit"] as const) {
  const failing = (code: string, message = "refused") =>
    contextOf({ [step]: () => Promise.reject(Object.assign(new Error(message), { code })) });

  for (const code of ["55P03", "40P01"]) {
    test(`${code} of ${step} is no failure of a tick: it is busy, and comes again`, async (t) => {
      t.like(await tickOnce(failing(code), request), { busy: true, more: true, admitted: 0 });
    });
  }

  test(`so is a lock timeout of ${step} that PostgreSQL calls a cancel`, async (t) => {
    t.like(await tickOnce(failing("57014", "canceling statement due to user request"), request), {
      busy: true,
    });
    await t.throwsAsync(tickOnce(failing("57014", "canceling statement due to statement timeout"), request));
  });

  test(`any other error of ${step} fails the tick`, async (t) => {
    for (const code of ["57014", "40001", "23514"])
      await t.throwsAsync(tickOnce(failing(code), request), { message: "refused" }, code);
  });
}

test("a pass that has routed few arrivals needs no router before", async (t) => {
  let asked = "";
  const context = contextOf({
    route: async () => t.fail(),
    admit: async () => {
      asked += "admit ";
      return { ...nothing, routed: 2, claimed: 1, admitted: 1 };
    },
  });
  t.like(await tickOnce(context, request), { routed: true, admitted: 1, progress: true, busy: false });
  t.is(asked, "admit ");
});

for (const [what, answer, progress] of [
  ["claims nothing", {}, false],
  ["finds all due jobs of what it claims locked", { claimed: 1 }, false],
  ["claims as many as it may, so others wait", { claimed: 50 }, true],
  ["admits", { claimed: 1, admitted: 1 }, true],
  ["quarantines a job", { claimed: 1, quarantined: 1 }, true],
  ["denies", { claimed: 1, denied: { throttle_empty: 1 } }, true],
  ["drops what has expired", { claimed: 1, to_tell: true }, true],
] as const) {
  test(`a pass that ${what} has ${progress ? "" : "not "}got further`, async (t) => {
    const pass = await tickOnce(
      contextOf({ admit: async () => ({ ...nothing, next_in_ms: -600, ...answer }) }),
      request,
    );
    t.like(pass, { progress, more: true });
  });
}

for (const [what, answer, hurries] of [
  ["a gate denied", { claimed: 2, admitted: 1, denied: { concurrency_full: 1 } }, true],
  ["that wait for the end of a probe", { claimed: 1, admitted: 1, denied: { probing: 1 } }, true],
  ["of which none went", { claimed: 1 }, true],
  ["that had no token", { claimed: 2, admitted: 1, denied: { throttle_empty: 1 } }, false],
  ["of which none is left", { claimed: 1, admitted: 1 }, false],
] as const) {
  test(`releases are ${hurries ? "" : "not "}hurried for jobs ${what}`, async (t) => {
    const context = contextOf({ admit: async () => ({ ...nothing, ...answer }) });
    let hurried = false;
    const onDenied = () => {
      hurried = true;
    };
    const loop = startShardLoop(
      { ...context, logger: silent, minTickIntervalMs: 0, loopHeartbeatMs: 60_000, onDenied },
      { policy: "p", shard: null },
    );
    await loop.stop(); // after its first pass
    t.is(hurried, hurries);
  });
}
