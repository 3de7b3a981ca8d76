import { EventEmitter } from "node:events";
import type { CompiledSharedOptions, WorkerEventMap, WorkerEvents } from "graphile-worker";

/** Graphile Worker's events that this package listens to. */
const NAMES = [
  "pool:create",
  "pool:listen:success",
  "pool:listen:error",
  "pool:listen:notification",
  "pool:listen:release",
  "pool:fatalError",
  "pool:release",
  "localQueue:init",
  "localQueue:getJobs:complete",
  "localQueue:returnJobs",
  "worker:create",
  "worker:stop",
  "worker:getJob:start",
  "worker:getJob:empty",
  "worker:getJob:error",
  "job:start",
  "job:complete",
] as const satisfies readonly (keyof WorkerEventMap)[];

type Own = (typeof NAMES)[number];

/** An emitter of these events. To listen to another one does not compile. */
export interface OwnEvents {
  on<N extends Own>(name: N, listener: (event: WorkerEventMap[N]) => void): unknown;
  once<N extends Own>(name: N, listener: (event: WorkerEventMap[N]) => void): unknown;
  off<N extends Own>(name: N, listener: (event: WorkerEventMap[N]) => void): unknown;
}

/** The receivers of an emitter, by the hooks of compiled options: copies of these options have the same hooks. */
type Receivers = WeakMap<object, WorkerEvents>;
const receiversOf = new WeakMap<WorkerEvents, Receivers>();

/**
 * Graphile Worker's events of these options only. An application may give one emitter to several runs, one after another or
 * at once. Each of them has other options, such as its pool, its tasks and its flags to skip.
 *
 * However many they are, the emitter has one listener for each event.
 */
export function ownEvents({ events, hooks }: CompiledSharedOptions): OwnEvents {
  const own: WorkerEvents = new EventEmitter();
  (receiversOf.get(events) ?? relay(events)).set(hooks, own);
  return own;
}

function relay(events: WorkerEvents): Receivers {
  const receivers: Receivers = new WeakMap();
  receiversOf.set(events, receivers);
  for (const name of NAMES)
    events.on(name, (event: { ctx: { hooks: object } }) => {
      receivers.get(event.ctx.hooks)?.emit(name, event as never);
    });
  return receivers;
}
