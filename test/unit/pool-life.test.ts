// A pool that stops does not wait for the end of a pause: neither of its registration, nor of jobs after a silence.
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { makeOwnership } from "../../src/pool/ownership.ts";
import { makeLife } from "../../src/pool/pool-context.ts";
import { makeRegistration } from "../../src/pool/registration.ts";
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
    silence: { lasts: () => true, doubts: () => true, arrived() {}, check: async () => void asked++ },
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
