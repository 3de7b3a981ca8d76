import { tickTask } from "../src/admit/tick-task-file.ts";

/**
 * The task that the crontab names, for hosts that load tasks from files and have no preset. It ticks every policy in the
 * database. Keys that only a policy's functions can work out wait for a process that has the policy.
 *
 * @example
 * // tasks/dispatch_policy_tick.ts
 * export { default } from "graphile-worker-dispatch-policy/tasks/dispatch_policy_tick";
 */
export default tickTask();
