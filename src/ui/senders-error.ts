import { ArgumentError, UnknownPolicyError } from "../errors.ts";

/** Whether the sender can correct it: an argument that they gave, also if PostgreSQL found what is wrong with it (class 22). */
export function isSendersError(error: unknown): error is Error {
  return (
    error instanceof ArgumentError ||
    error instanceof UnknownPolicyError ||
    /^22...$/.test(String((error as { code?: unknown } | null)?.code))
  );
}

/**
 * What comes of it, or the error that the sender can correct.
 *
 * @throws any other error
 */
export async function orSendersError<Result>(run: () => Promise<Result>): Promise<Result | Error> {
  try {
    return await run();
  } catch (error) {
    if (!isSendersError(error)) throw error;
    return error;
  }
}
