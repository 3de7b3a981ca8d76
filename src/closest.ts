/**
 * The candidate that the author of `key` most likely meant, or undefined if none is near.
 *
 * Case, underscores and dashes do not count (`initial_max` is `initialMax`). Otherwise four letters in ten may be missing,
 * added or different, and at least one.
 *
 * @example closest("bust", ["rate", "per", "burst"]); // "burst"
 */
export function closest(key: string, candidates: Iterable<string>): string | undefined {
  return near(key, candidates)[0];
}

/** All candidates that are as near as that, the nearest first. */
function near(key: string, candidates: Iterable<string>): readonly string[] {
  const wanted = bare(key);
  return Array.from(candidates, (candidate) => {
    const offered = bare(candidate);
    const length = Math.max(wanted.length, offered.length);
    return {
      candidate,
      distance: editDistance(wanted, offered),
      most: Math.max(1, Math.floor(length * 0.4)),
    };
  })
    .filter(({ distance, most }) => distance <= most)
    .toSorted((one, other) => one.distance - other.distance)
    .map(({ candidate }) => candidate);
}

/**
 * The end of an error message about a key that does not exist: the nearest right key, or else all of them.
 *
 * @example `unknown option "bust"${suggestion("bust", ["rate", "burst"], "options")}`; // …: did you mean "burst"?
 */
export function suggestion(key: string, known: readonly string[], plural: string): string {
  return asked(near(key, known).slice(0, 1), known, plural);
}

/**
 * The same about a command, of which people remember a part: the nearest, and up to two that share a word with it or are near.
 *
 * @example suggestions("limit", ["limits", "set-limit"], "commands"); // : did you mean "limits" or "set-limit"?
 */
export function suggestions(key: string, known: readonly string[], plural: string): string {
  const words = key.split("-");
  const alike = known.filter((one) => one.split("-").some((word) => words.includes(word)));
  const [nearest = [], ...others] = near(key, known);
  return asked([...new Set([nearest, alike, others].flat())].slice(0, 3), known, plural);
}

function asked(meant: readonly string[], known: readonly string[], plural: string): string {
  if (meant.length > 0)
    return `: did you mean ${meant
      .map((one) => `"${one}"`)
      .join(", ")
      .replace(/, (?=[^,]*$)/, " or ")}?`;
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
