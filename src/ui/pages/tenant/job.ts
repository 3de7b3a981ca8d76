import type { OperateContext } from "../../../operate/call.ts";
import { ask, type Explanation } from "../../../operate/explain.ts";
import { parameter, rowsOf } from "../../../operate/view-rows.ts";
import { type Fact, factList } from "../../parts/facts.ts";
import { partitionLink } from "../../parts/links.ts";
import { moment } from "../../parts/words.ts";
import { isOwn, type Own } from "./own.ts";
import type { TenantPage } from "./visit.ts";
import { startsIn, waitsFor, waitsUntil } from "./words.ts";

/** Where a job of a policy can be, and the columns of its ids there. */
const PLACES = { staged_jobs: "id", in_flight_jobs: "staged_id", history: "id" } as const;

interface Whose {
  readonly policy: string | null;
  readonly partition: string | null;
  readonly admittedAt?: Date;
}

const STATES: Partial<Record<Explanation["state"], string>> = {
  staged: "it waits",
  parked: "it has failed, and waits for its retry",
  admitted: "it was admitted, and has not started",
  running: "it runs",
  failed: "it has failed for good",
  ended: "it has ended",
};

/**
 * One job of the tenant. One that has failed for good is found only by its history. Without one its partition is known by a
 * mark, which another may have as well.
 */
export const job: TenantPage = async ({ looking, base, own, query }) => {
  const id = query.get("id") ?? "";
  if (!/^\d{1,18}$/.test(id)) return null;
  // before anything is explained: else another's job would take longer to be refused than one that is not there
  const found = await whose(looking, id);
  const [first] = found;
  if (!(await areOwn(looking, own, found)) || !first) return null;
  const it = await ask(looking, { id });
  const hasMoved = typeof it.partition === "string" && !(await areOwn(looking, own, [it]));
  const state = STATES[it.state];
  if (hasMoved || state === undefined) return null;
  const waits = it.state === "staged" || it.state === "parked";
  const facts: readonly Fact[] = [
    ["state", state],
    ["policy", first.policy],
    [
      "partition",
      first.policy && first.partition !== null ? partitionLink(base, first.policy, first.partition) : null,
    ],
    ["task", it.taskIdentifier],
    ["due", it.runAt ? moment(it.runAt) : null],
    ["waits for", waits ? waitsFor(it) : null],
    ["until", waits ? waitsUntil(it) : null],
    ["expected to start", waits ? startsIn(it) : null],
    ["admitted", found.map(({ admittedAt }) => admittedAt && moment(admittedAt)).find(Boolean)],
    ["started", it.startedAt ? moment(it.startedAt) : null],
    ["ended", it.history?.endedAt ? moment(it.history.endedAt) : null],
    ["outcome", it.history?.outcome],
    ["attempts", it.attempts],
  ];
  return { title: `Job ${id}`, body: factList(facts) };
};

/** Whether all of these are the tenant's; false for none. */
async function areOwn(
  looking: OperateContext,
  own: Own,
  those: readonly { readonly policy?: string | null; readonly partition?: string | null }[],
): Promise<boolean> {
  const asked = new Map(those.map((one) => [JSON.stringify([one.policy, one.partition]), one]));
  if (asked.size === 0) return isOwn(looking, own, null, null); // which says no, after as long as for another's
  for (const { policy, partition } of asked.values())
    if (!(await isOwn(looking, own, policy, partition))) return false;
  return true;
}

/** The partitions of all jobs that have this id, in staging or in Graphile Worker. */
async function whose(looking: OperateContext, id: string): Promise<readonly Whose[]> {
  const found: Whose[] = [];
  for (const [view, column] of Object.entries(PLACES)) {
    const where = `where ${column} = ${parameter(1, "id")} or job_id = ${parameter(1, "id")}`;
    found.push(...(await rowsOf<Whose>(looking, view, where, [id])));
  }
  return found;
}
