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
import { TICK_TASK } from "../admit/tick-task.ts";
import { CHANNEL, type Notification, readNotification } from "../pool/notification.ts";
import { isWrapped, type Observer, wrapTasks } from "../run/wrap-task.ts";

// Where this package takes hold of Graphile Worker beyond what plugins are offered. Each is guarded by the host matrix
// test: it fails when a release of Graphile Worker changes one.

/**
 * Who observes the jobs of a worker pool, by the pool's abort signal, which helpers carry: a list of tasks is wrapped
 * once, and may be run by pools of several presets.
 */
const observers = new WeakMap<AbortSignal, Observer>();
const observerOf = ({ abortSignal }: JobHelpers) => observers.get(abortSignal);

/**
 * Graphile Worker has no per-job middleware. Between them these three cover every way to run tasks: the list among the
 * options, the local queue's, and each worker's.
 */
export function wrapTaskLists(
  compiled: CompiledSharedOptions,
  observer: Observer,
  tickTask: Task,
  logger: Logger,
): void {
  let warned = false;
  const wrap = (tasks: TaskList): void => {
    const own = tasks[TICK_TASK];
    if (!own) tasks[TICK_TASK] = tickTask;
    else if (!isWrapped(own) && !warned) {
      warned = true;
      logger.warn(
        `There is a task named ${TICK_TASK} already: it is kept, and this package's own is not used`,
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
  compiled.events.on("pool:create", ({ workerPool }) => {
    observers.set(workerPool.abortSignal, observer);
  });
  compiled.events.on("localQueue:init", ({ localQueue }) =>
    wrap((localQueue as unknown as { tasks: TaskList }).tasks),
  );
  compiled.events.on("worker:create", ({ tasks }) => wrap(tasks));
}

/**
 * Graphile Worker asks for the flags to skip before a worker looks for its next job: the one moment between two jobs
 * at which it waits for others. `act` returns null when there is nothing to wait for.
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
 * A worker's first fetch comes after its hook, whatever the hook throws, and after its flags were asked for: it fails as
 * it looks how many flags there are.
 */
export function refuseFirstFetch(event: { flagsToSkip: string[] | null }, error: Error): void {
  event.flagsToSkip = new Proxy<string[]>([], {
    get(): never {
      throw error;
    },
  });
}

/** A local queue fetches as soon as it is made, before a worker starts: its fetches wait until its pool is open. */
export function beforeLocalFetches(
  { events }: CompiledSharedOptions,
  openPool: (workerPool: WorkerPool, withPgClient: WithPgClient, tasks: TaskList) => Promise<void>,
): void {
  events.on("localQueue:init", (event) => {
    const localQueue = event.localQueue as unknown as LocalQueue;
    const { workerPool, withPgClient, tasks } = localQueue;
    const opened = openPool(workerPool, withPgClient, tasks);
    opened.catch(() => {}); // each fetch hears of it
    const held: WithPgClient = (callback) => opened.then(() => withPgClient(callback));
    localQueue.withPgClient = Object.assign(held, {
      withRetries: ((callback) =>
        opened.then(() => withPgClient.withRetries(callback))) satisfies WithPgClient,
    });
  });
}

/** What a local queue fetches jobs with. */
interface LocalQueue {
  readonly workerPool: WorkerPool;
  readonly tasks: TaskList;
  withPgClient: EnhancedWithPgClient;
}

/** In place: Graphile Worker keeps the object it compiled. */
function setOptions(
  compiled: CompiledSharedOptions,
  options: Partial<SharedOptions & { taskList: TaskList }>,
) {
  (compiled as { _rawOptions: object })._rawOptions = { ...compiled._rawOptions, ...options };
}

/** Listens on Graphile Worker's own client: a pool of two connections must do. */
export function listen(
  { events }: CompiledSharedOptions,
  schema: string,
  logger: Logger,
  onNotification: (poolId: string, said: Partial<Notification>, pid?: number) => void,
): void {
  events.on("pool:listen:success", ({ workerPool, client }) => {
    // a moment later: Graphile Worker sends its own LISTEN first
    setImmediate(() => {
      client.query(`listen ${CHANNEL}`).then(
        () => onNotification(workerPool.id, {}), // what was said while nobody listened
        (error: Error) => logger.debug(`Listening failed: ${error.message}`),
      );
    });
  });
  // the client may go back to a pool that outlives this worker
  events.on("pool:listen:release", ({ client }) => void client.query(`unlisten ${CHANNEL}`).catch(() => {}));
  events.on("pool:listen:notification", ({ workerPool, message }) => {
    if (message.channel !== CHANNEL) return;
    const said = readNotification(message.payload, schema);
    if (said) onNotification(workerPool.id, said, message.processId);
  });
}
