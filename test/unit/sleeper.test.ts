import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { makeSleeper } from "../../src/admit/sleeper.ts";

const FAR = 3_600_000;

test("a sleep ends at its time", async (t) => {
  const until = performance.now() + 20;
  await makeSleeper().sleepUntil(() => until);
  t.true(performance.now() >= until);
});

test("a sleep whose timer fires early goes on until its time", async (t) => {
  const blockedUntil = performance.now() + 15;
  while (performance.now() < blockedUntil); // Node does not look at its clock meanwhile
  const until = performance.now() + 10;
  await makeSleeper().sleepUntil(() => until);
  t.true(performance.now() >= until);
});

test("a sleep whose time is over takes one timer", async (t) => {
  const order: string[] = [];
  const sleep = makeSleeper()
    .sleepUntil(() => 0)
    .then(() => order.push("slept"));
  await Promise.resolve().then(() => order.push("next"));
  await sleep;
  t.deepEqual(order, ["next", "slept"]);
});

test("waking ends a sleep whose time is over by then", async (t) => {
  const sleeper = makeSleeper();
  let until = performance.now() + FAR;
  const sleep = sleeper.sleepUntil(() => until);
  until = 0;
  sleeper.wake();
  await sleep;
  t.pass();
});

test("waking moves the end of a sleep", async (t) => {
  const sleeper = makeSleeper();
  let until = performance.now() + FAR;
  const sleep = sleeper.sleepUntil(() => until);
  until = performance.now() + 20;
  sleeper.wake();
  await sleep;
  t.true(performance.now() >= until);
});

test("waking does not end a sleep whose time has not changed", async (t) => {
  const sleeper = makeSleeper();
  let until = performance.now() + FAR;
  let ended = false;
  const sleep = sleeper
    .sleepUntil(() => until)
    .then(() => {
      ended = true;
    });
  sleeper.wake();
  await turn();
  t.false(ended);
  until = 0;
  sleeper.wake();
  await sleep;
});

test("a sleep without an end lasts until it is woken", async (t) => {
  const sleeper = makeSleeper();
  let until = Number.POSITIVE_INFINITY;
  const sleep = sleeper.sleepUntil(() => until);
  let ended = false;
  sleep.then(() => {
    ended = true;
  });
  // Node ends a timer that is too long after 1 ms: a timer of 1 ms that starts later fires after it
  await makeSleeper().sleepUntil(() => 0);
  t.false(ended);
  until = 0;
  sleeper.wake();
  await sleep;
});

test("waking while nobody sleeps does nothing", async (t) => {
  const sleeper = makeSleeper();
  sleeper.wake();
  await sleeper.sleepUntil(() => 0);
  sleeper.wake();
  t.pass();
});
