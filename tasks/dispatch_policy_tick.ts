// The Graphile Worker task the crontab names, for hosts that load tasks from files and have no preset. It ticks every
// policy in the database; keys that only a policy's functions can work out wait for a process that has the policy.
import { tickTask } from "../src/admit/tick-task-file.ts";

export default tickTask();
