// Shadow gates for who declares and operates them.
import test from "ava";
import { PolicyDefinitionError } from "../../src/errors.ts";
import { adaptiveConcurrency, concurrency, throttle } from "../../src/index.ts";
import { type Minute, shadowTable } from "../../src/ui/pages/minutes.ts";
import { createUi } from "../../src/ui/ui.ts";
import { runCommand } from "../helpers/command.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, policyOf, scenario } from "../helpers/scenario.ts";

const shadow = true;
const narrow = throttle<Ctx>({ rate: 2, per: "1 hour", shadow });
const all = concurrency<Ctx>({ name: "all", scope: "policy", max: 3, shadow });

test("each gate takes shadow, true or false, and keeps its numbers", (t) => {
  t.deepEqual(concurrency({ max: 5, shadow }).values, { max: 5, shadow: true });
  t.true(throttle({ rate: 1, per: "1 day", window: "calendar", shadow }).values?.shadow);
  t.true(throttle({ rate: 1, per: "1 second", smooth: true, shadow }).values?.shadow);
  t.true(adaptiveConcurrency({ initialMax: 5, targetLagMs: 500, shadow }).values?.shadow);
  t.true(throttle({ rate: () => 1, per: "1 second", shadow }).constants.shadow);
  t.false("shadow" in concurrency({ max: 5, shadow: undefined }).values!);
  t.falsy(concurrency({ max: 5, shadow: false }).values?.shadow);
  for (const gate of [
    () => throttle({ rate: 1, per: "1 second", shadow: "yes" as never }),
    () => concurrency({ max: 1, shadow: 1 as never }),
    () => adaptiveConcurrency({ initialMax: 1, targetLagMs: 1, shadow: (() => true) as never }),
  ])
    t.throws(gate, { instanceOf: PolicyDefinitionError, message: /: shadow must be true or false, got / });
});

test("explain shows a shadow gate as such, and never names it as the reason", async (t) => {
  const it = await scenario(t, { gates: [narrow, all, concurrency<Ctx>({ name: "real", max: 5 })] });
  await it.stage("7@a");
  t.like(await it.tickNow(), { admitted: 5, denied: { concurrency_full: 1 } });
  const target = { policy: "p", partition: "a" };
  const it1 = await it.utils.explain(target);
  t.like(it1, { reason: "concurrency_full", gate: "real" });
  const byName = new Map(it1.gates.map((gate) => [gate.gate, gate]));
  t.like(byName.get("throttle"), { shadow: true, wouldLack: true, lacks: false, reason: null });
  t.like(byName.get("throttle")?.limit, { rate: 2, capacity: 2 });
  t.like(byName.get("all"), {
    shadow: true,
    wouldLack: true,
    lacks: false,
    used: 5,
    free: 0,
    limit: { max: 3 },
  });
  t.like(byName.get("real"), { shadow: false, wouldLack: null, lacks: true });
  const { stdout } = await runCommand(it.url, "explain", "--policy", "p", "--partition", "a");
  t.regex(stdout, /^ {2}~ throttle of a: 0 of 2 tokens, 2 per 3,600 s; shadow: would hold\s+it back$/m);
  t.regex(stdout, /^ {2}~ all: 0 of 3 slots free; shadow: would hold it back$/m);
  t.regex(stdout, /^ {2}x real of a: 0 of 5 slots free$/m);
  await it.finish(5);
  t.is((await it.utils.explain(target)).reason, null);
});

test("a shadow gate of rate 0 is no reason without an estimate", async (t) => {
  const halted = throttle<Ctx>({ rate: 0, per: "1 hour", shadow });
  const it = await scenario(t, { gates: [halted, throttle<Ctx>({ name: "real", rate: 1, per: "1 hour" })] });
  await it.stage("2@a");
  await it.tickNow();
  const { estimate, noEstimate, gate } = await it.utils.explain({ policy: "p", partition: "a" });
  t.is(gate, "real");
  t.is(estimate, null);
  t.regex(noEstimate ?? "", /^neither a loop nor the crontab/, "the shadow gate's rate is no reason");
});

test("views, metrics, commands and pages show a shadow gate with what it really has", async (t) => {
  const it = await scenario(t, { gates: [narrow, all] });
  await it.stage("5@a");
  await it.tickNow();
  const { tokens, available, ...throttled } = await it.limiter("throttle");
  t.like(throttled, { shadow: true, capacity: 2 });
  t.true(tokens >= 0 && tokens < 0.1 && Math.abs(tokens - available) < 0.1);
  t.like(await it.limiter("all"), { shadow: true, available: 0, in_flight: 5, max: 3 });
  const ui = createUi({ pool: it.pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const page = await (await ui(new Request("http://localhost/policy?policy=p"))).text();
  t.regex(page, /all \(shadow\)/);
  const metrics = await it.utils.metrics();
  t.regex(metrics, /^dispatch_policy_shadow_denied_total\{gate="all",policy="p"\} 2$/m);
  t.regex(metrics, /^dispatch_policy_shadow_denied_total\{gate="throttle",policy="p"\} 3$/m);
  t.regex(metrics, /^dispatch_policy_limiters_over_limit\{gate="all",policy="p"\} 0$/m);
  const [minute] = await it.rows("select shadow_denied from dispatch_policy.minutes where admitted > 0");
  t.deepEqual(minute.shadow_denied, { all: 2, throttle: 3 });
  const { stdout } = await runCommand(it.url, "policies");
  t.regex(stdout, /gate throttle: .*2 per .*; shadow, holds nothing back$/m);
  const top = await runCommand(it.url, "top", "--once");
  t.regex(top.stdout, /^p +throttle +3\np +all +2$/m);
  const later = await (await ui(new Request("http://localhost/policy?policy=p"))).text();
  t.regex(later, /a shadow gate would have held back[\s\S]*throttle[\s\S]*3/);
  const table = String(shadowTable([{ shadowDenied: { all: 2, throttle: 3 } } as unknown as Minute]));
  t.regex(table, /a shadow gate would have held back[\s\S]*throttle[\s\S]*3[\s\S]*all[\s\S]*2/);
});

test("take from a shadow gate says yes: it takes the tokens that are there, and counts a denial", async (t) => {
  const it = await scenario(t, { gates: [narrow] });
  const take = () => it.utils.take({ policy: "p", gate: "throttle", key: "a" });
  for (let n = 0; n < 4; n++) t.deepEqual(await take(), { taken: true, retryAt: null });
  const { tokens } = await it.limiter("throttle", "a");
  t.true(tokens >= 0 && tokens < 0.1);
  t.regex(await it.utils.metrics(), /^dispatch_policy_shadow_denied_total\{gate="throttle",policy="p"\} 2$/m);
});

test("a gate that a new definition makes real holds jobs back, and before that no gate does", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1, shadow })] });
  await it.stage("3@a");
  t.is((await it.tickNow()).admitted, 3);
  const real = concurrency<Ctx>({ max: 1 });
  const utils = await it.makeUtils([policyOf("p", { gates: [real], version: 1 })]);
  await utils.addJob("p", { key: "a" } as never);
  t.like(await it.tickNow(), { admitted: 0, denied: { concurrency_full: 1 } });
});

test("a job that was added past its policy starts although its shadow gates are full, and counts", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 0, shadow }), throttle<Ctx>({ rate: 0, per: "1 hour", shadow })],
  });
  const ran: string[] = [];
  await it.worker({ tasks: { p: (_, { job }) => void ran.push(job.id) } });
  await it.rows(`select graphile_worker.add_job('p', '{"key": "a"}')`);
  await until("it ran", () => ran.length === 1);
  t.is(await it.staged(), 0);
  const metrics = await it.utils.metrics();
  t.regex(metrics, /^dispatch_policy_shadow_denied_total\{gate="concurrency",policy="p"\} 1$/m);
  t.regex(metrics, /^dispatch_policy_shadow_denied_total\{gate="throttle",policy="p"\} 1$/m);
});
