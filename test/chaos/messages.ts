// What the conductor and the processes it starts say to each other, by node:child_process's own channel.
import type { JobGroup, Repaired } from "../../src/index.ts";
import type { Release, TaskName } from "./world.ts";

export type Role = "worker" | "ticker" | "enqueuer" | "meddler" | "outsider" | "hoarder";

export interface Orders {
  readonly role: Role;
  /** Its place among those of its role. */
  readonly place: number;
  /** How many processes there were before it. */
  readonly life: number;
  readonly url: string;
  readonly seed: number;
  /** The definitions that it declares. */
  readonly release: Release;
  /** Whether enqueuers give some of their calls a callback. An uninstall would refuse while a group is open. */
  readonly groups: boolean;
}

/** One run of a job, as its task tells it. Times in milliseconds, by the database's clock. */
export interface Execution {
  /** Its number in the process. */
  readonly n: number;
  readonly id: string;
  readonly task: TaskName;
  readonly account: string;
  /** Its job key, if it cancels older runs of it. */
  readonly key?: string | undefined;
  /** Graphile Worker's. */
  readonly job: string;
  readonly attempt: number;
  readonly staged: string;
  readonly createdAt: number;
  /** Null: it was admitted at its start. */
  readonly admittedAt: number | null;
  /** When its worker fetched it. */
  readonly lockedAt: number;
  /** It runs in a worker without the package, which knows no limits. */
  readonly outside: boolean;
  /** What the callback of a job group is told; null: it is none. */
  readonly group: JobGroup | null;
}

export type News =
  | { readonly ready: true }
  | { readonly start: Execution }
  /** `cut`: it ended because its worker stops, or a newer job has cancelled it. */
  | { readonly end: { readonly n: number; readonly ok: boolean; readonly cut: boolean } }
  /** Graphile Worker could not record how a job ended, and shuts down. */
  | { readonly unrecorded: true }
  /** The id by which an outsider locks jobs: nobody unlocks them when it has died. */
  | { readonly pool: string }
  | { readonly swept: Repaired }
  /** A job came back from this worker pool, which runs its share already. */
  | { readonly requeued: true }
  | { readonly tick: "open" | "closed" }
  /** Ids that a transaction is about to stage; what becomes of it follows. */
  | { readonly intends: readonly string[] }
  /** Jobs of one key that it has added, and a newer one that it is about to add: they need not run to their ends. */
  | { readonly newest: string; readonly older: readonly string[] }
  /** The job that comes once these, of which it is about to stage all or none, have ended for good. */
  | { readonly callback: string; readonly of: readonly string[] }
  | { readonly staged: readonly string[] }
  | { readonly rolledBack: readonly string[] }
  /** The policy is about to be switched off. It waits until the conductor has taken note of this number. */
  | { readonly off: TaskName; readonly n: number }
  /** It is switched on. */
  | { readonly on: TaskName }
  /** Something happened on purpose: a refused serialization, a time-out. */
  | { readonly met: string }
  | { readonly failure: string };

export type Command =
  /** The conductor has taken note of the news numbered so. */
  | { readonly noted: number }
  /** Take every connection of the process's own pool for so long. */
  | { readonly hog: number }
  | { readonly end: true };
