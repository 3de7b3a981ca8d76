// What a job does. It tells the conductor of each start, before it does anything, and of each end, before anything is given
// back: so what the conductor sees running at once is never too much.
import { setTimeout as delay } from "node:timers/promises";
import type { Job } from "graphile-worker";
import { CancelledError, type DispatchPolicyHelpers } from "../../src/index.ts";
import { ticketOf } from "../../src/run/fetched-job.ts";
import { chance, onCommand, tell } from "./member.ts";
import type { Execution } from "./messages.ts";
import type { Payload, TaskName } from "./world.ts";

let starts = 0;
const noted = new Map<number, () => void>();
onCommand((command) => {
  if ("noted" in command) noted.get(command.noted)?.();
});

/** `own`: the helpers of a worker with the preset. Null: the worker is one without it. */
export async function perform(
  task: TaskName,
  payload: Payload,
  job: Job,
  own: Pick<DispatchPolicyHelpers, "stagedId" | "admittedAt" | "settle"> | null,
  signal?: AbortSignal,
): Promise<void> {
  const n = starts++;
  await isNoted(n, () => tell({ start: execution(n, task, payload, job, own) }));
  const heeds = payload.key !== undefined && chance.chance(0.7);
  await delay(payload.ms, undefined, heeds && signal ? { signal } : {}).catch((error) => {
    if (error.name !== "AbortError") throw error; // told to end: what follows says so
  });
  if (signal?.reason instanceof CancelledError) tell({ met: "run of an older job cancelled" });
  // never less than it was admitted for: the judge takes no returns into account
  if (task === "call" && chance.chance(0.3)) own?.settle({ cost: chance.pick([1, 1, 2]) });
  const cut = heeds && signal?.aborted === true;
  const ok = job.attempts > payload.failures && !cut;
  await isNoted(n, () => tell({ end: { n, ok, cut } }));
  if (!ok) throw new Error("on purpose");
}

function execution(
  n: number,
  task: TaskName,
  { id, account, key, _group }: Payload,
  job: Job,
  own: Parameters<typeof perform>[3],
): Execution {
  return {
    ...{ n, id, task, account, key, job: job.id, attempt: job.attempts },
    // one that is admitted later gets another staged id: its flag says which staged job it was
    staged: ticketOf(job)?.stagedId ?? own?.stagedId ?? job.id,
    createdAt: job.created_at.getTime(),
    admittedAt: own?.admittedAt?.getTime() ?? null,
    lockedAt: job.locked_at!.getTime(),
    outside: own === null,
    group: _group ?? null,
  };
}

/** Resolves once the conductor has taken note of what `say` says. */
function isNoted(n: number, say: () => void): Promise<void> {
  return new Promise((resolve) => {
    noted.set(n, () => {
      noted.delete(n);
      resolve();
    });
    say();
  });
}
