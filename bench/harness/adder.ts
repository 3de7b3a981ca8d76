import { makeWorkerUtils, type WorkerUtils } from "graphile-worker";
import { type AnyPolicy, makePolicyUtils } from "../../src/index.ts";
import { logger } from "./logger.ts";
import type { SideName } from "./sides.ts";

export type Adder = Pick<WorkerUtils, "addJob" | "addJobs" | "release">;

/** Who adds jobs: this package's utils, or Graphile Worker's. */
export async function openAdder(
  name: SideName,
  {
    policy,
    ...connecting
  }: { policy: AnyPolicy | readonly AnyPolicy[]; connectionString: string; maxPoolSize: number },
): Promise<Adder> {
  const options = { ...connecting, logger };
  const utils =
    name === "governed"
      ? await makePolicyUtils({ ...options, policies: [policy].flat() })
      : await makeWorkerUtils(options);
  return utils as Adder;
}
