// What the admin pages take, and the figures for Prometheus, with 200 policies of 500 partitions and a job in each. Either
// nobody ticks, so that all of them are ready and could go, or each policy's jobs are at its limit.
import { loadavg } from "node:os";
import { servePages } from "./served-pages.ts";
import { say } from "./timing.ts";
import { jobsOf, keys, makeWorld, ticksOn } from "./world.ts";

const POLICIES = Number(process.env.POLICIES ?? 200);
const PARTITIONS = Number(process.env.PARTITIONS ?? 500);
const FULL = PARTITIONS / 10;

async function look(what: string, isTicked: boolean): Promise<void> {
  const world = await makeWorld({
    gates: [
      { gate: "own", kind: "concurrency", scope: "partition", max: 1 },
      { gate: "all", kind: "concurrency", scope: "policy", max: FULL },
    ],
  });
  const [{ definition }] = (await world.query("select definition from dispatch_policy.policies")) as [
    { definition: object },
  ];
  const [batch] = JSON.parse(world.batches(jobsOf(keys(PARTITIONS)))) as [{ jobs: object[] }];
  for (let n = 0; n < POLICIES; n++) {
    const policy = `policy-${n}`;
    const settings = { halfLifeSeconds: 60, admissionBatchSize: 100, tickAdmissionBudget: null };
    await world.query("select * from dispatch_policy_internal._declare_policy($1, 'bench', $2, now())", [
      JSON.stringify({ ...definition, name: policy, tasks: [policy] }),
      JSON.stringify(settings),
    ]);
    const jobs = batch.jobs.map((job) => ({ ...job, task: policy }));
    await world.stageText(JSON.stringify([{ ...batch, policy, jobs }]));
    const { route, admit } = ticksOn(world.client, policy);
    while ((await route()) > 0);
    if (isTicked) for (let admitted = 1; admitted > 0; ) ({ admitted } = await admit(2 * FULL));
  }
  await world.settle();
  const pages = await servePages(world.url, () => ({ name: "bench", role: "operator" }));
  console.log(`# ${what}, load ${loadavg()[0]!.toFixed(1)}`);
  const policy = "policy=policy-7";
  for (const path of ["/", "/policies", `/policy?${policy}`, `/partition?${policy}&partition=partition-7`])
    await pages.measure(path, path);
  const { ms, cpu } = await world.timed(() => world.query("select * from dispatch_policy.metrics()"));
  say("metrics", { complete: `${ms.toFixed(0)} ms`, processor: `${cpu.toFixed(0)} ms` });
  await pages.close();
  await world.close();
}

await look("nobody ticks", false);
await look("each at its limit", true);
