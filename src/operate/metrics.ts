import { readEvents } from "../admit/read-events.ts";
import type { Figure } from "../db/rolling-up.ts";
import { asText } from "../metrics/text.ts";
import { asOurs, type OperateContext } from "./call.ts";
import { foldActivity } from "./sweep.ts";

/** A role that only looks, and a replica, cannot fold. Without the schema the question itself fails, and says so. */
const CANNOT_WRITE: ReadonlySet<string | undefined> = new Set(["25006", "42501", "42P01", "3F000"]);

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
export const foldIfAllowed = (context: OperateContext): Promise<void> =>
  foldActivity(context).catch(unlessAllowed);

/** Reads what happened, for the history and job groups, if no tick loop has done so yet and this role may. */
export const readIfAllowed = (context: OperateContext): Promise<void> =>
  readEvents(context).catch(unlessAllowed);

function unlessAllowed(error: unknown): void {
  const { code, cause, errors } = error as { code?: string; cause?: { code?: string }; errors?: unknown[] };
  if (errors) for (const one of errors) unlessAllowed(one);
  else if (!CANNOT_WRITE.has(code ?? cause?.code)) throw error;
}
