import { setTimeout as delay } from "node:timers/promises";
import { isBusy } from "../db/outage.ts";
import { RemovalError } from "../errors.ts";
import { call, type OperateContext } from "./call.ts";
import { IDLE_SLEEP_MS, IDLE_STEPS } from "./steps.ts";
import { checkVerb } from "./verb.ts";

/** The options of `uninstall`. */
export interface UninstallOptions {
  /** Uninstalls although worker pools with the preset live, or job groups are open, whose callbacks are lost. Default false. */
  force?: boolean | undefined;
}

/** What an uninstall did. */
export interface Uninstalled {
  /** How many waiting jobs Graphile Worker has now. */
  unstaged: number;
  /** How many of them had failed: they wait there for the time of their retry. */
  parked: number;
  /** How many waiting jobs left without a trace, because a newer job of their key is there. */
  replaced: number;
  /** How many waiting jobs were dropped, because they had expired. */
  expired: number;
  /** How many jobs were locked by worker pools that were killed. They run again. */
  unlocked: number;
  /** How many jobs of the crontab's task `dispatch_policy_tick` were removed. */
  tickJobs: number;
}

/** A result of the SQL function. */
interface Step {
  readonly unstaged: number;
  readonly parked: number;
  readonly replaced: number;
  readonly refused: number;
  readonly expired: number;
  readonly unlocked: number;
  readonly tick_jobs: number;
  readonly dropped: boolean;
}

const NOTHING: Step = {
  ...{ unstaged: 0, parked: 0, replaced: 0, refused: 0, expired: 0 },
  ...{ unlocked: 0, tick_jobs: 0, dropped: false },
};

/** Documented at {@link Operate.uninstall}. */
export async function uninstall(
  context: OperateContext,
  options: UninstallOptions = {},
): Promise<Uninstalled> {
  checkVerb("uninstall", options, { takes: ["force"] });
  const total: Uninstalled = {
    ...{ unstaged: 0, parked: 0, replaced: 0, expired: 0, unlocked: 0, tickJobs: 0 },
  };
  let busy: unknown;
  for (let idle = 0; idle < IDLE_STEPS; ) {
    busy = undefined;
    const step = await call<Step>(context, "uninstall", { force: options.force }).catch((error) => {
      if (!isBusy(error)) throw error;
      busy = error;
      return NOTHING;
    });
    total.unstaged += step.unstaged;
    total.parked += step.parked;
    total.replaced += step.replaced;
    total.expired += step.expired;
    total.unlocked += step.unlocked;
    total.tickJobs += step.tick_jobs;
    if (step.dropped) return total;
    if (step.unstaged + step.replaced + step.expired > 0) idle = 0;
    else if (step.refused > 0) throw await refused(context, total);
    else {
      idle++;
      await delay(IDLE_SLEEP_MS);
    }
  }
  throw new RemovalError(
    `uninstall: another session keeps tables or jobs locked; ${soFar(total)}. End long transactions (view ` +
      "pg_stat_activity), then uninstall again",
    { cause: busy },
  );
}

/** Names a job that Graphile Worker refuses. */
async function refused({ withPgClient, engine }: OperateContext, total: Uninstalled): Promise<Error> {
  const where = "where error is not null";
  const count = await withPgClient((client) => engine.countRows(client, "staged_jobs", where));
  const [first] = await withPgClient((client) =>
    engine.view<{ id: string; error: string }>(client, "staged_jobs", `${where} order by id limit 1`),
  );
  return new RemovalError(
    `uninstall: Graphile Worker refuses ${count} waiting jobs, expected it to take all; the first is job ` +
      `${first?.id}: ${first?.error}; ${soFar(total)}. Remove these jobs (view staged_jobs, column error), then ` +
      "uninstall again",
  );
}

function soFar({ unstaged }: Uninstalled): string {
  return `${unstaged} jobs were unstaged, all policies are switched off, and the schema stays`;
}
