// Several worker processes, of which one after the other is killed by `kill -9` and replaced, while jobs of many tenants
// wait and at most three of a tenant may run at once. A run ends with its process.
import { setTimeout as delay } from "node:timers/promises";
import { moment } from "../../harness/moment.ts";
import { quantile } from "../../harness/statistics.ts";
import type { Case, Figures } from "../case.ts";
import { jobsOf, keysOf, openArena } from "../contest.ts";
import { openCrew } from "../crew.ts";
import { overruns, type Seen } from "../seen.ts";
import { CAP } from "./cap.ts";

/** The shortest that pg-boss takes for its heartbeat. */
const SILENT_MS = 10_000;
const STEP_MS = 250;

export const kills: Case = {
  name: "kills",
  what: "worker processes are killed and replaced, at most 3 at once of each tenant",
  limit: { atOnce: CAP, overProcesses: true },
  size: "kills",
  async run(system, { kills: size }) {
    const keys = keysOf(size.tenants);
    const jobs = jobsOf(keys, size.jobsPerTenant);
    const arena = await openArena(system, { keys, limit: kills.limit, silentMs: SILENT_MS });
    await arena.add(jobs);
    await arena.settle();
    const crew = openCrew({ system: system.name, world: arena.world, workMs: size.workMs });
    for (let n = 0; n < size.workers; n++) await crew.join();
    for (let n = 0; n < size.kills; n++) {
      await delay(size.everyMs);
      await crew.killOldest();
      await crew.join();
    }
    const last = moment() + size.withinMs;
    while (endedOf(crew.seen()).size < jobs.length && moment() < last) await delay(STEP_MS);
    const seen = crew.seen();
    await crew.stop();
    await arena.close();
    return figuresOf(seen, jobs.length);
  },
};

function figuresOf(seen: readonly Seen[], jobs: number): Figures {
  const { most, above } = overruns(seen, CAP);
  const ended = endedOf(seen);
  const started = Map.groupBy(seen, nameOf);
  const killed = seen.filter((run) => run.killed);
  const back = killed.flatMap((run) => timeUntilNext(run, started.get(nameOf(run))!));
  return {
    ended: ended.size,
    runsKilled: killed.length,
    notBack: [...started.keys()].filter((name) => !ended.has(name)).length,
    unstarted: jobs - started.size,
    endedTwice: [...ended.values()].filter((runs) => runs.length > 1).length,
    backP50Ms: quantile(back, 0.5),
    backMostMs: quantile(back, 1),
    mostAtOnce: most,
    startsAbove: above,
  };
}

/** By job, the runs that came to their end. */
function endedOf(seen: readonly Seen[]): Map<string, Seen[]> {
  return Map.groupBy(
    seen.filter(({ end, killed }) => end !== undefined && !killed),
    nameOf,
  );
}

const nameOf = ({ key, id }: Seen): string => `${key} ${id}`;

/** Nothing where the job did not start again. */
function timeUntilNext({ start, end }: Seen, runs: readonly Seen[]): number[] {
  const next = runs.map((run) => run.start).filter((other) => other > start);
  return next.length === 0 ? [] : [Math.min(...next) - end!];
}
