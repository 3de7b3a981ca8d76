import type {
  CompiledSharedOptions,
  EnhancedWithPgClient,
  JobHelpers,
  Logger,
  SharedOptions,
  Task,
  TaskList,
  WithPgClient,
  WorkerPool,
} from "graphile-worker";
import { CHANNEL, type Notification, readNotification } from "../admit/notification.ts";
import { checkAnswers, type PoolClient } from "../db/listening.ts";
import { TICK_TASK } from "../policy/job.ts";
import type { Fetching } from "../run/adoption.ts";
import { isHandled, type Observer, wrapTasks } from "../run/wrap-task.ts";
import type { OwnEvents } from "./own-events.ts";

// The parts of Graphile Worker that this package uses beyond the plugin interface. If a release of Graphile Worker changes
// one, the host matrix test fails.

/**
 * The observers of worker pools, by the pools' abort signals, which helpers have. A list of tasks is wrapped only once,
 * but pools of several presets may run it.
 */
const observers = new WeakMap<AbortSignal, Observer>();
const observerOf = ({ abortSignal }: JobHelpers) => observers.get(abortSignal);

/**
 * Wraps tasks in place, because Graphile Worker has no middleware for jobs. Three lists cover every way to run tasks: the
 * one among the options, the local queue's, and each worker's.
 */
export function wrapTaskLists(
  compiled: CompiledSharedOptions,
  own: OwnEvents,
  observer: Observer,
  tickTask: Task,
  logger: Logger,
): void {
  let warned = false;
  const wrap = (tasks: TaskList): void => {
    const own = tasks[TICK_TASK];
    if (!own) tasks[TICK_TASK] = tickTask;
    else if (!isHandled(own) && !warned) {
      warned = true;
      logger.warn(
        `There is a task named ${TICK_TASK} already: it is kept, and this package's task is not used`,
      );
    }
    wrapTasks(tasks, observerOf);
  };
  const { taskList } = compiled._rawOptions as { taskList?: TaskList };
  if (taskList) {
    const wrapped = { ...taskList };
    wrap(wrapped);
    setOptions(compiled, { taskList: wrapped });
  }
  own.on("pool:create", ({ workerPool }) => {
    observers.set(workerPool.abortSignal, observer);
  });
  own.on("localQueue:init", ({ localQueue }) => wrap((localQueue as unknown as { tasks: TaskList }).tasks));
  own.on("worker:create", ({ tasks }) => wrap(tasks));
}

/**
 * Graphile Worker asks for the flags to skip before a worker fetches its next job. It is the only moment between two jobs
 * at which it waits. `act` returns null if there is nothing to wait for.
 */
export function beforeEachFetch(compiled: CompiledSharedOptions, act: () => Promise<unknown> | null): void {
  const { forbiddenFlags: given = null } = compiled._rawOptions as SharedOptions;
  const flags = () => (typeof given === "function" ? given() : given);
  setOptions(compiled, {
    forbiddenFlags: () => {
      const acting = act();
      return acting === null ? flags() : acting.then(flags);
    },
  });
}

/**
 * Makes a worker's first fetch fail. Graphile Worker fetches even if the hook throws, so the flags to skip throw when it
 * reads how many there are.
 */
export function refuseFirstFetch(event: { flagsToSkip: string[] | null }, error: Error): void {
  event.flagsToSkip = new Proxy<string[]>([], {
    get(): never {
      throw error;
    },
  });
}

/**
 * Graphile Worker reads the keys of the task list before each fetch. So it does not fetch a task whose key is hidden
 * there for a while. A job that was fetched before still finds its task.
 */
export function fetchingOf(workerPool: WorkerPool, tasks: TaskList, slots: number): Fetching {
  const setKey = (task: string, enumerable: boolean) =>
    Object.hasOwn(tasks, task) && Reflect.defineProperty(tasks, task, { enumerable });
  return {
    stop: (task) => void setKey(task, false),
    resume(task) {
      setKey(task, true);
      try {
        workerPool.nudge(slots); // its workers found nothing meanwhile, and sleep until they poll
      } catch {
        // it is stopping, and its workers have ended
      }
    },
  };
}

/**
 * Graphile Worker reads the tasks' ids, and makes those that are missing, when the keys of the list have changed. So they get
 * another order now and then, and soon if jobs came and none was found: somebody's GC_TASK_IDENTIFIERS removes the ids of tasks
 * whose jobs are staged, and their next jobs get others. If the reading fails, Graphile Worker keeps the failure, and every fetch
 * fails until the keys change once more. So they do after a fetch that failed.
 */
export function renewTaskIds(own: OwnEvents, everyMs: number): void {
  const lists = new WeakMap<WorkerPool, { readonly tasks: TaskList; readAt: number; jobsCame: boolean }>();
  const renew = (workerPool: WorkerPool, afterMs: number) => {
    const list = lists.get(workerPool);
    if (!list || performance.now() - list.readAt < afterMs) return;
    Object.assign(list, { readAt: performance.now(), jobsCame: false });
    reorder(list.tasks);
  };
  const foundNone = (workerPool: WorkerPool) => {
    if (lists.get(workerPool)?.jobsCame) renew(workerPool, Math.min(SOON_MS, everyMs));
  };
  own.on("worker:create", ({ worker: { workerPool }, tasks }) => {
    if (!lists.has(workerPool)) lists.set(workerPool, { tasks, readAt: performance.now(), jobsCame: false });
  });
  own.on("pool:listen:notification", ({ workerPool, message }) => {
    const list = lists.get(workerPool);
    if (list && message.channel === "jobs:insert") list.jobsCame = true;
  });
  own.on("worker:getJob:start", ({ worker }) => renew(worker.workerPool, everyMs));
  own.on("worker:getJob:empty", ({ worker }) => foundNone(worker.workerPool));
  // the workers of a local queue wait in it while it fetches again and again
  own.on("localQueue:getJobs:complete", ({ localQueue, jobs }) => {
    const { workerPool } = localQueue as unknown as LocalQueue;
    renew(workerPool, everyMs);
    if (jobs.length === 0) foundNone(workerPool);
  });
  own.on("worker:getJob:error", ({ worker }) => renew(worker.workerPool, 0));
}

const SOON_MS = 5000;

/** The same for a list that a host without the preset runs: its keys have another order each 30 seconds. */
export function withNewTaskIds<T extends TaskList>(tasks: T): T {
  return new Proxy(tasks, {
    ownKeys(list) {
      const keys = Reflect.ownKeys(list);
      return Math.floor(performance.now() / 30_000) % 2 === 0 ? keys : keys.reverse();
    },
  });
}

function reorder(tasks: TaskList): void {
  const [first] = Object.keys(tasks);
  if (first === undefined) return;
  const { [first]: task } = tasks;
  delete tasks[first];
  tasks[first] = task;
}

/** A local queue fetches as soon as it is made, before a worker starts. This makes its fetches wait for its pool. */
export function beforeLocalFetches(
  own: OwnEvents,
  openPool: (workerPool: WorkerPool, withPgClient: WithPgClient, tasks: TaskList) => Promise<void>,
): void {
  own.on("localQueue:init", (event) => {
    const localQueue = event.localQueue as unknown as LocalQueue;
    const { workerPool, withPgClient, tasks } = localQueue;
    const opened = openPool(workerPool, withPgClient, tasks);
    opened.catch(() => {}); // each fetch rejects with the same error
    const whenOpened: WithPgClient = (callback) => opened.then(() => withPgClient(callback));
    localQueue.withPgClient = Object.assign(whenOpened, {
      withRetries: ((callback) =>
        opened.then(() =>
          withPgClient.withRetries(callback).catch((error) => {
            reorder(tasks); // see renewTaskIds: a local queue emits no event for this
            throw error;
          }),
        )) satisfies WithPgClient,
    });
  });
}

/** A connection that was quiet for so long is asked whether it is there. */
const QUIET_MS = 8000;

/** The worker pool of a local queue. */
export function poolOf(localQueue: unknown): WorkerPool {
  return (localQueue as LocalQueue).workerPool;
}

/** The parts of a local queue that fetch jobs. */
interface LocalQueue {
  readonly workerPool: WorkerPool;
  readonly tasks: TaskList;
  withPgClient: EnhancedWithPgClient;
}

/** Changes options in place, because Graphile Worker keeps the object that it compiled. */
function setOptions(
  compiled: CompiledSharedOptions,
  options: Partial<SharedOptions & { taskList: TaskList }>,
) {
  (compiled as { _rawOptions: object })._rawOptions = { ...compiled._rawOptions, ...options };
}

/**
 * Listens on Graphile Worker's own client, because a pool of two connections must be enough. Graphile Worker sends a
 * statement when it gets the client and one when it gives it up, and waits for neither. pg will refuse statements that
 * queue up. So ours go out only after an answer.
 */
export function listen(
  own: OwnEvents,
  schema: string,
  logger: Logger,
  onNotification: (poolId: string, said: Partial<Notification>, pid?: number) => void,
): { checkListening(poolId: string): void } {
  const releases = new WeakMap<object, () => void>();
  const listeners = new Map<string, PoolClient>();
  const heardAt = new WeakMap<object, number>();
  own.on("pool:listen:success", ({ workerPool, client }) => {
    let listening: Promise<void> | undefined;
    const start = () => {
      listening = client.query(`listen ${CHANNEL}`).then(
        () => {
          listeners.set(workerPool.id, client);
          heardAt.set(client, performance.now());
          onNotification(workerPool.id, {}); // notifications may have been missed before
        },
        (error: Error) => logger.debug(`Listening failed: ${error.message}`),
      );
    };
    client.once("drain", start); // Graphile Worker's LISTEN is answered
    releases.set(client, () => {
      client.off("drain", start);
      // the client may go back to a pool that outlives this worker
      listening?.then(() => client.query(`unlisten ${CHANNEL}`)).catch(() => {});
    });
  });
  own.on("pool:listen:release", ({ workerPool, client }) => {
    if (listeners.get(workerPool.id) === client) listeners.delete(workerPool.id);
    releases.get(client)?.();
  });
  own.on("pool:listen:notification", ({ workerPool, message, client }) => {
    heardAt.set(client, performance.now());
    if (message.channel !== CHANNEL) return;
    const said = readNotification(message.payload, schema);
    if (said) onNotification(workerPool.id, said, message.processId);
  });
  return {
    /** Looks whether a pool's notifications still come. If not, Graphile Worker listens anew. */
    checkListening(poolId): void {
      const client = listeners.get(poolId);
      if (!client || performance.now() - (heardAt.get(client) ?? 0) < QUIET_MS) return;
      heardAt.set(client, performance.now());
      void checkAnswers(client, `listen ${CHANNEL}`);
    },
  };
}
