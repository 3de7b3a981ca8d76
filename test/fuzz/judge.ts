// What runs at once, as the jobs themselves say: knows nothing of the engine's counters.

/** A job that runs now. */
export interface Run {
  readonly id: string;
  readonly partition: string;
  /** False once its slot was given back by hand: it runs on, and counts no longer. */
  counts: boolean;
}

/** A limit on how many jobs of one scope key run at once. */
export interface Cap {
  readonly gate: string;
  readonly max: number;
  keyOf(partition: string): string;
}

export function makeJudge(caps: readonly Cap[]) {
  const runs = new Set<Run>();
  const problems: string[] = [];

  function count({ keyOf }: Cap, key: string): number {
    return [...runs].filter((run) => run.counts && keyOf(run.partition) === key).length;
  }

  return {
    problems,
    runs,
    /** A job begins: its caps must have had room for it. */
    starts(run: Run): void {
      runs.add(run);
      for (const cap of caps) {
        const key = cap.keyOf(run.partition);
        const n = count(cap, key);
        if (n > cap.max) problems.push(`${n} jobs of ${cap.gate} ${key} run at once, ${cap.max} may`);
      }
    },
    ends: (run: Run): void => void runs.delete(run),
    /** Before somebody gives a job's slot back by hand. */
    excuse(id: string): void {
      for (const run of runs) if (run.id === id) run.counts = false;
    },
  };
}

export type Judge = ReturnType<typeof makeJudge>;
