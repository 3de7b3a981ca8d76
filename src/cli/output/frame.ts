// What fits on a screen of few lines.

/** A part of a frame. */
export interface Part {
  /** The lines of a table, or a sentence. */
  readonly lines: readonly string[];
  /** Whether the first of them is a table's head. */
  readonly hasHead?: true;
  /** Which rows stay where not all have room: those with the greatest number. Without it: the first ones. */
  readonly ranks?: readonly number[];
  /** A line in its place, where not everything has room. */
  readonly short?: string;
}

/**
 * The parts below each other, in at most so many lines. Blank lines go first, then parts that have a short form, and then rows
 * of the longest part. A last line says how many rows are missing.
 */
export function framed(title: string, parts: readonly Part[], most = Number.POSITIVE_INFINITY): string {
  const spaced = [title, ...parts.flatMap(({ lines }) => ["", ...lines])];
  if (spaced.length <= most) return spaced.join("\n");
  const close = [title, ...parts.flatMap(({ lines }) => lines)];
  if (close.length <= most) return close.join("\n");
  const short = parts.map((part) => (part.short === undefined ? part : { lines: [part.short] }));
  const shown = short.map(rowsOf).map(({ length }) => length);
  const drawn = () => [title, ...short.flatMap((part, place) => withRows(part, shown[place] as number))];
  while (drawn().length > most) {
    const longest = shown.indexOf(Math.max(...shown));
    if ((shown[longest] as number) <= 1) break;
    shown[longest] = (shown[longest] as number) - 1;
  }
  return drawn().join("\n");
}

const rowsOf = ({ lines, hasHead }: Part) => lines.slice(hasHead ? 1 : 0);

function withRows(part: Part, count: number): readonly string[] {
  const rows = rowsOf(part);
  if (count >= rows.length) return part.lines;
  const rankOf = (row: number) => part.ranks?.[row] ?? -row;
  const kept = new Set(
    [...rows.keys()].toSorted((one, other) => rankOf(other) - rankOf(one)).slice(0, count),
  );
  const head = part.hasHead ? part.lines.slice(0, 1) : [];
  return [...head, ...rows.filter((_, row) => kept.has(row)), `… and ${rows.length - count} more`];
}
