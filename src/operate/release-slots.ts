import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** `jobId`: Graphile Worker's id or the staged one. */
export type ReleaseSlotsOptions = { jobId: string } & Why;

/**
 * Gives back what an in-flight job holds, though it has not ended: for one that hangs. It is not stopped; should it run
 * on, it counts no longer, and its end gives nothing back.
 *
 * @throws {ArgumentError} without a job id
 * @example await utils.releaseSlots({ jobId: "1234", reason: "hangs since the deploy" });
 */
export async function releaseSlots(context: OperateContext, options: ReleaseSlotsOptions): Promise<Changed> {
  checkVerb("releaseSlots", options, { needs: ["jobId"], takes: ["reason", "by"] });
  const { jobId, reason, by } = options;
  return call<Changed>(context, "release_slots", { job_id: jobId, reason, by });
}
