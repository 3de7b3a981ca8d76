import { UnknownPolicyError } from "../../../errors.ts";
import type { OperateContext } from "../../../operate/call.ts";
import { type Answer, ask } from "../../../operate/explain.ts";
import type { PartitionTarget } from "../../../operate/targets.ts";

/** Why a partition's next job waits. Null: there is no such partition, or no such policy. That error would list the others. */
export async function look(looking: OperateContext, target: PartitionTarget): Promise<Answer | null> {
  const it = await ask(looking, target).catch((error: Error) => {
    if (error instanceof UnknownPolicyError) return null;
    throw error;
  });
  return it?.state === "unknown" ? null : it;
}
