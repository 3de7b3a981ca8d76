import { errorText } from "../error-text.ts";
import { PayloadError, type PayloadIssue } from "../errors.ts";
import { isThenable } from "./json.ts";
import type { SchemaIssue, SchemaResult, StandardSchema } from "./standard-schema.ts";

/** A message with more issues than this would be too long. `PayloadError.issues` has them all. */
const ISSUES_IN_MESSAGE = 5;

/**
 * The payload as its schema returns it, with defaults and coercions.
 *
 * @param asGiven whether JSON has changed nothing in it
 * @throws {PayloadError} if the schema refuses it, throws, or is asynchronous
 */
export function parsePayload(
  policy: string,
  schema: StandardSchema,
  payload: unknown,
  asGiven = true,
): unknown {
  const result = validate(policy, schema, payload);
  if (isThenable(result))
    throw new PayloadError(
      policy,
      "its payload schema is asynchronous (it returned a promise), expected a synchronous one: jobs are added without waiting for it",
    );
  const { value, issues } = result as SchemaResult;
  if (issues === undefined) return value;
  const plain = issues.map(plainIssue);
  throw new PayloadError(
    policy,
    `the payload${asGiven ? "" : ", as JSON stores it,"} fails its schema: ${summary(plain)}`,
    { issues: plain },
  );
}

function validate(policy: string, schema: StandardSchema, payload: unknown): unknown {
  try {
    return schema["~standard"].validate(payload);
  } catch (cause) {
    throw new PayloadError(policy, `its payload schema threw: ${errorText(cause)}`, { cause });
  }
}

function plainIssue({ message, path = [] }: SchemaIssue): PayloadIssue {
  return { message, path: path.map((step) => (typeof step === "object" ? step.key : step)) };
}

function summary(issues: readonly PayloadIssue[]): string {
  const lines = issues
    .slice(0, ISSUES_IN_MESSAGE)
    .map(({ message, path }) => (path.length === 0 ? message : `${path.map(String).join(".")}: ${message}`));
  const more = issues.length - lines.length;
  return lines.join("; ") + (more > 0 ? `; and ${more} more` : "");
}
