import type { Figure } from "../db/rolling-up.ts";
import { asText } from "../metrics/text.ts";
import { asOurs, type OperateContext } from "./call.ts";
import { foldActivity } from "./sweep.ts";

/** A role that only looks, and a replica, cannot fold. */
const CANNOT_WRITE: ReadonlySet<string | undefined> = new Set(["25006", "42501"]);

/** Documented at {@link Operate.metrics}. */
export async function metrics(context: OperateContext): Promise<string> {
  return asText(await figures(context));
}

/** The figures of now. What workers have not folded yet is folded first, if this role may. */
export async function figures(context: OperateContext): Promise<readonly Figure[]> {
  await foldIfAllowed(context);
  return asOurs(() => context.withPgClient(context.engine.figures), context);
}

/** Adds up what workers have not added up yet, if this role may. */
export async function foldIfAllowed(context: OperateContext): Promise<void> {
  await foldActivity(context).catch((error) => {
    const { code, cause } = error as { code?: string; cause?: { code?: string } };
    if (!CANNOT_WRITE.has(code ?? cause?.code)) throw error;
  });
}
