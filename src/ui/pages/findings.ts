import { MissingGrantError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import { doctor, type Finding, findingsAbout } from "../../operate/doctor.ts";

/**
 * What is wrong, or what is wrong with one policy. Null: this connection may not ask the doctor, who reads more than a role that
 * only looks may.
 */
export async function findingsOf(
  acting: OperateContext,
  policy?: string,
): Promise<readonly Finding[] | null> {
  const asked = policy === undefined ? doctor(acting) : findingsAbout(acting, policy);
  return asked.catch((error: Error) => {
    if (error instanceof MissingGrantError) return null;
    throw error;
  });
}

export const UNASKED =
  "The doctor was not asked: the connection of these pages may not. The owner of the schema can.";
