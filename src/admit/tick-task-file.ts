import type { Task } from "graphile-worker";
import { makeEngine } from "../db/engine.ts";
import { noEvents } from "../events.ts";
import { readSettings } from "../settings.ts";
import { makeTickTask } from "./tick-task.ts";

/** `dispatch_policy_tick` without policies of its own. Schema and settings are the defaults, and the environment's. */
export function tickTask(): Task {
  const settings = readSettings({ policies: [] });
  return makeTickTask({ ...settings, engine: makeEngine(settings.schema), events: noEvents });
}
