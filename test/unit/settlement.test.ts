// What a run may say of its cost, and what its release then says.
import test from "ava";
import type { Job } from "graphile-worker";
import { ArgumentError, concurrency, definePolicy, throttle } from "../../src/index.ts";
import { Settlement } from "../../src/run/settlement.ts";

const job = { id: "12" } as Job;
const llm = definePolicy("llm", {
  partitionBy: "tenant",
  gates: [
    throttle({ rate: 100, per: "1 minute" }),
    throttle({ name: "day", rate: 1000, per: "1 day" }),
    concurrency({ max: 2 }),
  ],
});
const free = definePolicy("free", { partitionBy: "tenant", gates: [concurrency({ max: 2 })] });

test("the last call counts, for a gate or for all throttles", (t) => {
  const said = new Settlement(llm, job);
  t.is(said.settled, undefined);
  said.settle({ cost: 5 });
  t.deepEqual(said.settled, { cost: 5 });
  said.settle({ gate: "day", cost: 7 });
  said.settle({ gate: "day", cost: 8 });
  t.deepEqual(said.settled, { cost: 5, gates: { day: 8 } });
  said.settle({ cost: 0 });
  t.deepEqual(said.settled, { cost: 0 });
});

for (const [what, policy, options, message] of [
  [
    "an unknown gate",
    llm,
    { gate: "dy", cost: 1 },
    /^settle: gate is "dy", which policy "llm" does not have; expected one of "throttle", "day", or none to settle at each of them$/,
  ],
  [
    "a gate that counts jobs",
    llm,
    { gate: "concurrency", cost: 1 },
    /^settle: gate is "concurrency", which counts the jobs in flight, whatever they cost; expected one of "throttle"/,
  ],
  [
    "a policy without a throttle",
    free,
    { gate: "concurrency", cost: 1 },
    /; expected none, because the policy has no throttle$/,
  ],
  ["a cost below 0", llm, { cost: -1 }, /^settle: cost must be a finite number, 0 or more .*, got -1$/],
  ["NaN", llm, { cost: Number.NaN }, /^settle: cost must be .*, got NaN$/],
  ["a text", llm, { cost: "5" }, /^settle: cost must be .*, got "5"$/],
  ["no cost", llm, { gate: "day" }, /^settle: cost is missing/],
  [
    "a gate that is no text",
    llm,
    { gate: 5, cost: 1 },
    /^settle: gate must be the name of a throttle, got 5$/,
  ],
  ["another option", llm, { gates: "day", cost: 1 }, /gates/],
] as const)
  test(`${what} is refused, and what was said before stays`, (t) => {
    const said = new Settlement(policy, job);
    said.settle({ cost: 3 });
    t.throws(() => said.settle(options as never), { instanceOf: ArgumentError, message });
    t.deepEqual(said.settled, { cost: 3 });
  });

test("a run that has ended says nothing more", (t) => {
  const said = new Settlement(llm, job);
  said.settle({ cost: 3 });
  said.end();
  t.throws(() => said.settle({ cost: 4 }), {
    instanceOf: ArgumentError,
    message: /^settle: job 12 has ended, and its cost is settled; expected a call before the task's promise/,
  });
  t.deepEqual(said.settled, { cost: 3 });
});
