// A worker whose jobs run for as long as they say, and fail the first time if they say so. Its answer is what started and ended since the last one.
import { setTimeout as delay } from "node:timers/promises";
import type { Task } from "graphile-worker";
import type { Seen } from "../../studies/ahead.ts";
import {
  cappedPolicy,
  ELSEWHERE,
  elsewherePolicy,
  openPolicy,
  TASK,
  touchedPolicy,
  weightedPolicy,
} from "../jobs.ts";
import { moment } from "../moment.ts";
import { readOrders, serve } from "./parent.ts";
import { startWorker, type WorkerOrders } from "./worker.ts";

const NOTHING = (): Seen => ({ starts: [], ends: [] });

const POLICIES = {
  weighted: weightedPolicy,
  capped: cappedPolicy,
  open: openPolicy,
  touched: [touchedPolicy, elsewherePolicy],
};

const orders = readOrders<WorkerOrders & { policies?: keyof typeof POLICIES }>();
let seen = NOTHING();

const task: Task = async (payload, { job }) => {
  const { tenant, ms = 0, fails = false } = payload as { tenant: string; ms?: number; fails?: boolean };
  seen.starts.push({ tenant, at: moment() });
  if (ms > 0) await delay(ms);
  seen.ends.push({ tenant, at: moment() });
  if (fails && job.attempts === 1) throw new Error("the first time");
};
const runner = await startWorker(orders, POLICIES[orders.policies ?? "weighted"], {
  [TASK]: task,
  [ELSEWHERE]: task,
});

serve(
  async (): Promise<Seen> => {
    const answer = seen;
    seen = NOTHING();
    return answer;
  },
  () => runner.stop(),
);
