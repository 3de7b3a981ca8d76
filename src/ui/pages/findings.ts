import { MissingGrantError } from "../../errors.ts";
import type { OperateContext } from "../../operate/call.ts";
import { doctor, type Finding } from "../../operate/doctor.ts";

/** Null: this connection may not ask the doctor, who reads more than a role that only looks may. */
export async function findingsOf(acting: OperateContext): Promise<readonly Finding[] | null> {
  return doctor(acting).catch((error: Error) => {
    if (error instanceof MissingGrantError) return null;
    throw error;
  });
}

export const UNASKED =
  "The doctor was not asked: the connection of these pages may not. The owner of the schema can.";
