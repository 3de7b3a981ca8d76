// Runs that say what they cost: `helpers.dispatchPolicy.settle`.
import test, { type ExecutionContext } from "ava";
import {
  type DispatchPolicyHelpers,
  fixed,
  type PolicyOptions,
  RetryAfter,
  throttle,
} from "../../src/index.ts";
import { MONTH, until } from "../helpers/engine.ts";
import { type Ctx, scenario, VIAS, type Via } from "../helpers/scenario.ts";

type Act = (own: DispatchPolicyHelpers) => void | Promise<void>;
type Words = Partial<PolicyOptions<string, undefined, Ctx>>;
type Throttle = NonNullable<Parameters<typeof throttle<Ctx>>[0]>;

/** In a second it gains a hundredth of a token. */
const DAILY: Throttle = { rate: 1000, per: "1 day" };

/** A worker whose jobs do what they are told to, one after the other. */
async function world(t: ExecutionContext, words: Words, { via = "utils" as Via, loop = false } = {}) {
  const it = await scenario(t, words, { via });
  const acts: Act[] = [];
  let runs = 0;
  const task = async (_payload: unknown, helpers: { dispatchPolicy?: DispatchPolicyHelpers }) => {
    runs++;
    await acts.shift()?.(helpers.dispatchPolicy!);
  };
  await it.worker({ tasks: { p: task }, loop, slots: 3 });
  /** Stages a job of this cost, or lets the one go that waits. Resolves when it has done this and its slot is back. */
  const run = async (act: Act, cost?: number, { ticks = !loop } = {}) => {
    const before = runs;
    acts.push(act);
    if (cost !== undefined) await it.stage("1@a", { cost });
    if (ticks) await until("it is admitted", async () => (await it.tickNow()).admitted === 1);
    await until("it has run", () => runs > before);
    await until("its slot is back", async () => (await it.inFlight()).length === 0);
  };
  const tokens = async (gate = "throttle") => Math.round((await it.limiter(gate)).tokens);
  return { it, acts, run, tokens };
}

for (const via of VIAS)
  for (const [kind, more, debt] of [
    ["bucket", {}, -1000],
    ["sliding window", { window: "sliding" }, -4500],
    ["calendar window", { window: "calendar", per: "1 month", timeZone: MONTH.split(" ")[1]! }, -4500],
  ] as const)
    test(`scenario 40: estimates of 300, and what the runs cost, a ${kind} (${via})`, async (t) => {
      const { it, run, tokens } = await world(
        t,
        { gates: [throttle<Ctx>({ ...DAILY, ...more } as Throttle)] },
        { via },
      );
      await run((own) => own.settle({ cost: 400 }), 300);
      t.is(await tokens(), 600);
      await run((own) => own.settle({ gate: "throttle", cost: 100 }), 300);
      t.is(await tokens(), 500);
      await run((own) => {
        own.settle({ cost: 1 });
        own.settle({ cost: 5000 });
      }, 300);
      await it.stage("1@a", { cost: 300 });
      t.is(await tokens(), debt, "a bucket owes what it gains in a day, at most");
      const { admitted, denied, nextEligibleAt } = await it.tickNow();
      t.deepEqual([admitted, denied], [0, { throttle_empty: 1 }]);
      t.true(nextEligibleAt! > new Date());
      if (kind === "bucket")
        t.is(Math.round((nextEligibleAt!.getTime() - Date.now()) / 8_640_000), 13, "1.3 days");
    });

test("scenario 40: an attempt that fails is settled as well, and its retry pays the estimate anew", async (t) => {
  const gates = [throttle<Ctx>(DAILY)];
  const { run, tokens } = await world(t, { gates, backoff: fixed("1 ms") });
  await run((own) => {
    own.settle({ cost: 20 });
    throw new Error("badly");
  }, 300);
  t.is(await tokens(), 980);
  await run(() => {
    throw new Error("badly again, and nobody says what it cost");
  });
  t.is(await tokens(), 680);
  await run((own) => {
    own.settle({ cost: 0 });
    throw new RetryAfter("1 ms", { reason: "429: it took nothing" });
  });
  t.is(await tokens(), 680);
  await run((own) => own.settle({ cost: 310 }));
  t.is(await tokens(), 370);
});

test("scenario 40: tokens that come back let the next job go at once where a loop runs", async (t) => {
  const { it, acts, run, tokens } = await world(t, { gates: [throttle<Ctx>(DAILY)] }, { loop: true });
  let goOn = () => {};
  const waits = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  acts.push(async (own) => {
    await waits;
    own.settle({ cost: 100 });
  });
  await it.stage("1@a", { cost: 900 });
  await until("it runs", async () => acts.length === 0);
  await it.stage("1@a", { cost: 800 });
  await until("the next one waits", async () => (await it.partition("a")).reason === "throttle_empty");
  const next = run((own) => own.settle({ cost: 700 }));
  goOn();
  await next;
  t.is(await tokens(), 200);
});

test("a retry that bypasses the gates has paid nothing, so its settlement is its whole cost", async (t) => {
  const { it, acts, run, tokens } = await world(t, {
    ...{ gates: [throttle<Ctx>(DAILY)], retries: "bypass", backoff: fixed("1 ms") },
  });
  const retried = run((own) => own.settle({ cost: 10 }), undefined, { ticks: false });
  acts.unshift(() => {
    throw new Error("badly");
  });
  await it.stage("1@a", { cost: 300 });
  t.is((await it.tickNow()).admitted, 1);
  await retried;
  await until("the retry has run", async () => acts.length === 0 && (await it.inFlight()).length === 0);
  t.is(await tokens(), 690);
});

test("a policy that is off settles nothing, and its jobs may call settle all the same", async (t) => {
  const { it, acts, run, tokens } = await world(t, { gates: [throttle<Ctx>(DAILY)] });
  await run(() => {}, 300);
  await it.utils.disable({ policy: "p" });
  let ran = false;
  acts.push((own) => {
    own.settle({ cost: 5000 });
    ran = true;
  });
  await it.rows(`select graphile_worker.add_job('p', '{"key": "a"}')`);
  await until(
    "it has run",
    async () => ran && (await it.rows("select from graphile_worker.jobs")).length === 0,
  );
  t.is(await tokens(), 700);
});
