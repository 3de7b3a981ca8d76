/** Graphile Worker's words for the same. */
const NO_TEXT = "Non error or error without message thrown.";

/**
 * The text of whatever was thrown: the message of an error, else its own text. It never throws. A task may throw `undefined`,
 * an object without a prototype, or one whose message throws itself.
 */
export function errorText(thrown: unknown): string {
  try {
    const hasMessage =
      thrown instanceof Error || (typeof thrown === "object" && thrown !== null && "message" in thrown);
    return (hasMessage && String(thrown.message)) || String(thrown) || NO_TEXT;
  } catch {
    return NO_TEXT;
  }
}
