// A pool that stops does not wait for the end of a pause: of its registration, of jobs after a silence, of a one-shot pool,
// or of a sweep.
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import type { Engine } from "../../src/db/engine.ts";
import { sweepOnce } from "../../src/operate/sweep.ts";
import { catchUp } from "../../src/pool/one-shot.ts";
import { makeOwnership } from "../../src/pool/ownership.ts";
import { makeLife } from "../../src/pool/pool-context.ts";
import { makeRegistration } from "../../src/pool/registration.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";

/** Whether the promise is settled when all that is due now has run. */
async function ends(promise: Promise<unknown>): Promise<boolean> {
  let ended = false;
  promise.finally(() => {
    ended = true;
  });
  await turn();
  return ended;
}

test("a registration that pauses after an error ends when the pool stops", async (t) => {
  const life = makeLife();
  const registration = makeRegistration({
    life,
    introduce: () => Promise.reject(new Error("no database")),
    declare: () => Promise.resolve(),
    sayEnded: () => Promise.resolve(),
    logger: silent,
  });
  const registered = registration.register();
  t.false(await ends(registered), "it pauses");
  life.stop();
  t.true(await ends(registered));
  t.true(registration.hasFailed());
});

test("a job that waits for the end of a silence goes on when the pool is closed", async (t) => {
  const life = makeLife();
  let asked = 0;
  const ownership = makeOwnership({
    life,
    silence: {
      lasts: () => true,
      doubts: () => true,
      arrived: () => false,
      doubt() {},
      begins() {},
      check: async () => void asked++,
    },
    saidRuns: { givingUp: () => null, owesWord: () => false },
    beat: () => Promise.resolve(),
    keeps: () => Promise.reject(new Error("not asked here")),
  });
  const confirmed = ownership.confirm({ id: "1" } as never) as Promise<void>;
  t.false(await ends(confirmed), "it pauses");
  life.stop();
  t.false(await ends(confirmed), "heartbeats go on");
  life.close();
  t.true(await ends(confirmed));
  t.is(asked, 1);
});

test("a one-shot pool that waits for its last releases goes on when it stops", async (t) => {
  const life = makeLife();
  const ticks = { registry: { policies: [] } } as never;
  const caughtUp = catchUp(ticks, { idle: () => new Promise<void>(() => {}) }, life.onStop);
  t.false(await ends(caughtUp), "it pauses");
  life.stop();
  t.true(await ends(caughtUp));
});

test.serial("a one-shot pool does not wait for a time that a standing clock never reaches", async (t) => {
  const found = { next_in_ms: 10, to_route: false, denied: {}, claimed: 0, admitted: 0 };
  const passesUntil = async (last: number) => {
    let passes = 0;
    const engine = new Proxy({} as Engine, {
      get: (_, step: string) => async () =>
        step !== "admit" ? 0 : { ...found, next_in_ms: ++passes < last ? found.next_in_ms : null },
    });
    const ticks = {
      ...{ engine, events: { emit() {} }, partitionBatchSize: 1 },
      registry: { policies: [greet] },
      withPgClient: (act: (client: never) => unknown) => act({} as never),
    } as never;
    await catchUp(ticks, { idle: () => Promise.resolve() }, makeLife().onStop);
    return passes;
  };
  t.is(await passesUntil(3), 3, "the time comes");
  const { now } = Date;
  t.teardown(() => Object.assign(Date, { now }));
  Date.now = () => 0;
  t.is(await passesUntil(3), 1);
});

test("a sweep that waits for late ends goes on when the pool stops, and leaves them to the next one", async (t) => {
  const life = makeLife();
  let looks = 0;
  const looked = Promise.withResolvers<void>();
  const steps: Record<string, () => unknown> = {
    sweepInFlight: () => {
      looks++;
      looked.resolve();
      return [{ job_id: null, marked: 1 }];
    },
  };
  const engine = new Proxy({} as Engine, { get: (_, step: string) => async () => steps[step]?.() ?? [] });
  const swept = sweepOnce({
    ...{ engine, withPgClient: ((act: (client: never) => unknown) => act({} as never)) as never },
    ...{
      events: { emit() {} } as never,
      logger: silent,
      ages: { partitionInactiveAfterMs: 0, keepAuditForMs: 0, metricsRetentionMs: 6e8 },
      signal: life.onStop,
    },
  });
  await looked.promise;
  t.false(await ends(swept), "it pauses");
  life.stop();
  t.true(await ends(swept));
  t.is(looks, 1);
});
