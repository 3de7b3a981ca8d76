import { ArgumentError, UnknownPolicyError } from "../../errors.ts";
import { EXIT, type Exit, UsageError } from "../command.ts";

/** Errors whose cause is the command line. */
const USAGE = [UsageError, ArgumentError, UnknownPolicyError];

/** An error in words, and the exit code that it means. */
export function explained(error: unknown): { message: string; exit: Exit } {
  const exit = USAGE.some((kind) => error instanceof kind) ? EXIT.usage : EXIT.failed;
  return { message: messageOf(error), exit };
}

/** Node tries all addresses of a host, and gives the error of the attempts together an empty message. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === "")
    return [...new Set(error.errors.map(messageOf))].join("; ");
  return error instanceof Error ? error.message : String(error);
}
