import { actOf, call, type OperateContext, told } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** The options of `releaseSlots`. */
export type ReleaseSlotsOptions = {
  /** The job's id: Graphile Worker's or the staged one. */
  jobId: string;
} & Why;

/** Documented at {@link Operate.releaseSlots}. */
export async function releaseSlots(context: OperateContext, options: ReleaseSlotsOptions): Promise<Changed> {
  checkVerb("releaseSlots", options, { needs: ["jobId"], takes: ["reason", "by"] });
  const { jobId, reason, by } = options;
  const released = await call<Changed>(context, "release_slots", { job_id: jobId, reason, by });
  told(context, "dispatchPolicy:releaseSlots", { jobId: String(jobId), ...actOf(released, options) });
  return released;
}
