// Which jobs were added, and what became of each: by the ids in their payloads, which copies and retries keep. Knows
// nothing of the engine's tables.

/** What one call, or one transaction, did: it counts once that is over. */
export class Done {
  /** Ids of jobs that it added. */
  readonly added: string[] = [];
  /** Ids of jobs that were dropped as they were added, because their key was remembered. */
  readonly dropped: string[] = [];
  /** Ids of jobs that it ended, as the verb itself answered. */
  readonly ended: string[] = [];
  /** Keys of which it ended a job, without saying which. */
  readonly endedKeys: string[] = [];
  readonly charges: Taken[] = [];
}

/** Tokens that `take` took. Times in milliseconds. */
export interface Taken {
  readonly gate: string;
  readonly key: string;
  readonly from: number;
  readonly to: number;
}

interface Added {
  readonly id: string;
  readonly key: string | null;
  /** No verb may end a witness. */
  readonly witness: boolean;
  readonly from: number;
  /** When it was acknowledged. */
  to?: number;
  rolledBack?: boolean;
  dropped?: boolean;
  started?: boolean;
  /** When it ran well, or its worker gave it up. */
  finished?: number;
  succeeded?: number;
  excused?: boolean;
}

export function makeLedger(problems: string[]) {
  const jobs = new Map<string, Added>();
  const taken: Taken[] = [];
  const drops: Added[] = [];
  const ofKey = (key: string) => [...jobs.values()].filter((job) => job.key === key);

  /** Nothing that was added later, past every doubt, has replaced it. */
  const isNewest = (job: Added, others: readonly Added[]) =>
    !others.some((other) => other.to !== undefined && other.from > job.to!);

  /** One job of the key had run well by then, and the newest was over: whatever was added meanwhile may be that one. */
  function isRightly({ key, from, to }: Added): boolean {
    const by = (time: number | undefined) => time !== undefined && time <= to!;
    const versions = ofKey(key!).filter((job) => !job.rolledBack && !job.dropped && job.from <= to!);
    const before = versions.filter((job) => job.to !== undefined && job.to < from);
    const last = versions.filter(
      (job) => !before.some((other) => job.to !== undefined && other.from > job.to),
    );
    return (
      versions.some(({ succeeded, excused }) => by(succeeded) || excused) &&
      last.some(({ finished, excused }) => by(finished) || excused)
    );
  }

  return {
    taken,
    /** Somebody is about to add a job: returns the id for its payload. */
    adds(key: string | null, witness: boolean): string {
      const id = `j${jobs.size}`;
      jobs.set(id, { id, key, witness, from: performance.now() });
      return id;
    },
    /** A call or its transaction has ended. */
    settle(done: Done, committed: boolean): void {
      const now = performance.now();
      for (const id of done.added) {
        const job = jobs.get(id)!;
        if (committed) job.to = now;
        else job.rolledBack = true;
        if (!committed && job.started) problems.push(`${id} ran, and its transaction rolled back`);
      }
      for (const id of done.dropped) {
        const job = jobs.get(id)!;
        job.dropped = true;
        if (committed) drops.push({ ...job, to: now });
      }
      if (!committed) return;
      for (const id of done.ended) {
        const job = jobs.get(id);
        if (job) job.excused = true;
      }
      for (const key of done.endedKeys) for (const job of ofKey(key)) job.excused = true;
      taken.push(...done.charges);
    },
    starts(id: string): void {
      const job = jobs.get(id);
      if (!job || job.rolledBack || job.dropped) problems.push(`${id} runs, and nobody has added it`);
      else if (job.succeeded) problems.push(`${id} runs again, after it ran well`);
      else job.started = true;
    },
    finishes(id: string, how: "well" | "given up"): void {
      const job = jobs.get(id);
      if (!job) return;
      job.finished = performance.now();
      if (how === "well") job.succeeded = job.finished;
    },
    /** Once nothing is left: jobs that were acknowledged, and neither ran to their end nor were ended by a verb. */
    lost(): string[] {
      const acknowledged = [...jobs.values()].filter(({ to }) => to !== undefined);
      const keyless = acknowledged.filter(({ key }) => key === null);
      const lost = keyless.filter((job) => !isAccountedFor(job)).map(({ id, witness }) => tell(id, witness));
      for (const [key, versions] of Map.groupBy(acknowledged, (job) => job.key)) {
        if (key === null) continue;
        // of two that overlap, either may be the newest
        const newest = versions.filter((job) => isNewest(job, versions));
        if (newest.some(isAccountedFor)) continue;
        const ids = newest.map(({ id }) => id).join(" or ");
        const fates = versions.map((job) => `${job.id} ${fateOf(job)}`).join(", ");
        lost.push(`${tell(ids, newest[0]!.witness)}, the newest of ${key} (${fates})`);
      }
      return [
        ...lost,
        ...drops
          .filter((drop) => !isRightly(drop))
          .map(({ id, key }) => `job ${id} of ${key} was dropped wrongly`),
      ];
    },
    /** How many jobs were judged: witnesses, keys, all. */
    get counts() {
      const acknowledged = [...jobs.values()].filter(({ to }) => to !== undefined);
      return {
        jobs: acknowledged.length,
        witnesses: acknowledged.filter(({ witness }) => witness).length,
        keys: new Set(acknowledged.map(({ key }) => key)).size,
        excused: acknowledged.filter(({ excused }) => excused).length,
        dropped: drops.length,
      };
    },
  };
}

function isAccountedFor({ finished, excused }: Added): boolean {
  return finished !== undefined || excused === true;
}

/** For the reader of a failure: when it was added and acknowledged, in milliseconds, and what became of it. */
function fateOf({ from, to, started, finished, excused }: Added): string {
  const what = [started && "started", finished && "finished", excused && "ended by a verb"].filter(Boolean);
  return `${Math.round(from)} to ${Math.round(to!)}: ${what.join(", ") || "nothing"}`;
}

function tell(id: string, witness: boolean): string {
  return `${witness ? "witness" : "job"} ${id} is lost`;
}

export type Ledger = ReturnType<typeof makeLedger>;
