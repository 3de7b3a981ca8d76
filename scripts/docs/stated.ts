// A default as a docstring states it: as a value, or in words.

/** The value that a default states; undefined: it is stated in words. */
export function literal(fallback: string | undefined): unknown {
  try {
    return JSON.parse(fallback ?? "");
  } catch {
    return undefined;
  }
}

/** A value stands as code, a phrase as it is. */
export function shown(fallback: string): string {
  return literal(fallback) === undefined ? fallback : `\`${fallback}\``;
}
