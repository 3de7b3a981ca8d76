import { SLOTS } from "../../harness/children/worker.ts";
import { inCalls } from "../../harness/jobs.ts";
import type { Job, Limit, System } from "../system.ts";

const QUEUE = "bench";
/** As many as Graphile Worker has by default. */
const ATTEMPTS = 25;

/** What is used of it. Its own declarations need `skipLibCheck`: 12.38.0 does not export ResolvedConstructorOptions. */
interface Boss {
  on(event: "error", heard: (error: Error) => void): void;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options: object): Promise<void>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  work(name: string, options: object, handler: (jobs: { data: Job }[]) => Promise<void>): Promise<string>;
}

interface Settings {
  readonly instance?: object;
  readonly queue?: object;
  readonly worker?: object;
  /** The option that limits a group. */
  readonly limitedBy: "groupConcurrency" | "localGroupConcurrency";
}

const TUNED = {
  instance: {
    max: SLOTS + 1,
    useListenNotify: true,
    superviseIntervalSeconds: 1,
    monitorIntervalSeconds: 1,
    queueCacheIntervalSeconds: 1,
  },
  queue: { notify: true },
  worker: { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5, burstWhenReadyExceeds: 1 },
};

export const pgBoss = systemOf("pg-boss", { limitedBy: "groupConcurrency" });
export const pgBossTuned = systemOf("pg-boss tuned", { ...TUNED, limitedBy: "groupConcurrency" });

/** Its limit holds within one process only, which is all there is here. */
export const pgBossLocal: System = {
  ...systemOf("pg-boss local", { ...TUNED, limitedBy: "localGroupConcurrency" }),
  cannot(limit) {
    if (limit.overProcesses) return "its limit holds in one process";
    return whyNot(limit) ?? (limit.atOnce === undefined ? "is pg-boss tuned" : undefined);
  },
};

function systemOf(name: string, settings: Settings): System {
  const { instance, queue, worker, limitedBy } = settings;
  return {
    name,
    settings: { localConcurrency: SLOTS, ...settings },
    cannot: whyNot,
    async open({ url, silentMs }) {
      const boss = await startBoss({ connectionString: url, supervise: false, schedule: false });
      await boss.createQueue(QUEUE, { ...queue, ...recovery(silentMs) });
      return {
        add: (jobs) => inCalls(jobs, (some) => boss.insert(QUEUE, some.map(specOf))),
        stop: () => boss.stop({ graceful: false }),
      };
    },
    async start({ url, limit }, task) {
      const boss = await startBoss({ connectionString: url, ...instance });
      const limited = limit.atOnce === undefined ? {} : { [limitedBy]: limit.atOnce };
      await boss.work(QUEUE, { localConcurrency: SLOTS, ...worker, ...limited }, async (jobs) => {
        for (const { data } of jobs) await task(data); // one: batchSize
      });
      return () => boss.stop({ graceful: false });
    },
  };
}

/** A job of a dead worker is a failed one: it comes back while it has retries. */
function recovery(silentMs: number | undefined): object {
  return silentMs === undefined ? {} : { heartbeatSeconds: silentMs / 1000, retryLimit: ATTEMPTS };
}

const specOf = (job: Job) => ({ data: job, group: { id: job.key } });

function whyNot({ perSecond }: Limit): string | undefined {
  return perSecond === undefined ? undefined : "refuses jobs above a rate, instead of keeping them";
}

async function startBoss(options: object): Promise<Boss> {
  const { PgBoss } = await import("pg-boss" as string);
  const boss: Boss = new PgBoss(options);
  boss.on("error", (error) => console.error(`# pg-boss: ${error.message}`));
  await boss.start();
  return boss;
}
