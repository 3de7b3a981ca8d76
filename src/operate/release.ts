import { call, type OperateContext } from "./call.ts";
import { type Changed, checkVerb, type Why } from "./targets.ts";

/** `jobId`: Graphile Worker's id or the staged one. */
export type ReleaseOptions = { jobId: string } & Why;

/**
 * Gives back what an in-flight job holds, though it has not ended: for one that hangs. It is not stopped; should it run
 * on, it counts no longer, and its end gives nothing back.
 *
 * @throws {ArgumentError} without a job id
 * @example await utils.release({ jobId: "1234", reason: "hangs since the deploy" });
 */
export async function release(context: OperateContext, options: ReleaseOptions): Promise<Changed> {
  checkVerb("release", options, { needs: ["jobId"], takes: ["reason", "by"] });
  const { jobId, reason, by } = options;
  return call<Changed>(context, "release", { job_id: jobId, reason, by });
}
