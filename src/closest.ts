/**
 * The candidate that the author of `key` most likely meant, or undefined if none is near.
 *
 * Case, underscores and dashes do not count (`initial_max` is `initialMax`). Otherwise four letters in ten may be missing,
 * added or different, and at least one.
 *
 * @example closest("bust", ["rate", "per", "burst"]); // "burst"
 */
export function closest(key: string, candidates: Iterable<string>): string | undefined {
  const wanted = bare(key);
  let best: string | undefined;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const offered = bare(candidate);
    const length = Math.max(wanted.length, offered.length);
    const distance = editDistance(wanted, offered);
    if (distance < bestDistance && distance <= Math.max(1, Math.floor(length * 0.4))) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/**
 * The end of an error message about a key that does not exist: the nearest right key, or else all of them.
 *
 * @example `unknown option "bust"${suggestion("bust", ["rate", "burst"], "options")}`; // …: did you mean "burst"?
 */
export function suggestion(key: string, known: readonly string[], plural: string): string {
  const near = closest(key, known);
  if (near !== undefined) return `: did you mean "${near}"?`;
  return known.length === 0 ? ` (there are no ${plural})` : ` (known ${plural}: ${known.join(", ")})`;
}

function bare(key: string): string {
  return key.toLowerCase().replaceAll(/[_-]/g, "");
}

/** Levenshtein's distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
