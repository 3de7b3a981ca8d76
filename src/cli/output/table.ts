import { styleText } from "node:util";

/** Helps are made for this width, and so is what is not printed on a terminal. */
export const COLUMNS = 80;

export interface Column<T> {
  readonly title: string;
  readonly value: (row: T) => string;
  /** Numbers stand at the right. */
  readonly isNumber?: true;
  /** The width below which it is not cut. Without it, it is not cut at all. */
  readonly least?: number;
  /** Left out where others would have to be cut below their `least`: that of 1 first, then that of 2. */
  readonly spare?: number;
}

/** A table as wide as the terminal at most. Columns without any value are left out, then spare ones, and the widest are cut. */
export function table<T>(columns: readonly Column<T>[], rows: readonly T[], width = columnsOf()): string {
  const filled = columns
    .map((column) => ({ column, cells: rows.map((row) => visible(column.value(row))) }))
    .filter(({ cells }) => cells.some((cell) => cell !== ""))
    .map((one) => ({ ...one, width: Math.max(...[one.column.title, ...one.cells].map(widthOf)) }));
  const all = withoutSpare(filled, width);
  const widths = all.map((one) => one.width);
  shrink(
    widths,
    all.map(({ column }) => column.least),
    width - GAP.length * (all.length - 1),
  );
  const line = (cellOf: (place: number) => string) =>
    all
      .map(({ column }, place) => padded(cellOf(place), widths[place] as number, column.isNumber))
      .join(GAP)
      .trimEnd();
  const head = styleText(
    "bold",
    line((place) => all[place]?.column.title ?? ""),
  );
  return [head, ...rows.map((_, row) => line((place) => all[place]?.cells[row] ?? ""))].join("\n");
}

const GAP = "  ";

export function columnsOf(): number {
  return process.stdout.isTTY ? process.stdout.columns : COLUMNS;
}

type Sized = { readonly column: Pick<Column<never>, "least" | "spare">; readonly width: number };

function withoutSpare<S extends Sized>(columns: readonly S[], most: number): readonly S[] {
  const least = columns.reduce(
    (sum, { column, width }) => sum + GAP.length + Math.min(width, column.least ?? width),
    -GAP.length,
  );
  const [first] = columns
    .filter(({ column }) => column.spare !== undefined)
    .toSorted((one, other) => (one.column.spare as number) - (other.column.spare as number));
  return least <= most || !first
    ? columns
    : withoutSpare(
        columns.filter((one) => one !== first),
        most,
      );
}

/** Cuts the widest column that may be cut, until all fit or none can be cut more. */
function shrink(widths: number[], least: readonly (number | undefined)[], most: number): void {
  for (let over = widths.reduce((sum, width) => sum + width, 0) - most; over > 0; over--) {
    const widest = widths.reduce(
      (best, width, place) =>
        width > (least[place] ?? Number.POSITIVE_INFINITY) && width > (widths[best] ?? 0) ? place : best,
      -1,
    );
    if (widest === -1) return;
    widths[widest] = (widths[widest] as number) - 1;
  }
}

function padded(text: string, width: number, isNumber: boolean | undefined): string {
  const short = cut(text, width);
  const space = " ".repeat(width - widthOf(short));
  return isNumber ? space + short : short + space;
}

/** A line, broken between words where it is too long. */
export function wrapped(line: string, indent = "", width = columnsOf()): string {
  const lines = [""];
  for (const word of line.split(/(?<=\S) /)) {
    const last = lines.at(-1) as string;
    const longer = last === "" ? word : `${last} ${word}`;
    if (last !== "" && widthOf(longer) > width) lines.push(indent + word);
    else lines[lines.length - 1] = longer;
  }
  return lines.join("\n");
}

/** A text of at most this width. What is missing shows as "…". */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let short = "";
  for (const { segment } of SEGMENTS.segment(text)) {
    if (widthOf(short + segment) > width - 1) break;
    short += segment;
  }
  return `${short}…`;
}

/**
 * Keys and reasons come from outside. A control character among them would move the cursor, or hide a line, so it is shown
 * by its number. So are those that turn the direction of the text around.
 */
export function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (one) => `\\u${(one.codePointAt(0) as number).toString(16).padStart(4, "0")}`,
  );
}

const SEGMENTS = new Intl.Segmenter("en");
const WIDE =
  /^[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60]|^\p{Emoji_Presentation}/u;

/** How many columns a terminal takes for a text. */
function widthOf(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of SEGMENTS.segment(text)) width += WIDE.test(segment) ? 2 : 1;
  return width;
}
