import { html, type Markup } from "./markup.ts";

export interface Column<Row> {
  readonly title: string;
  readonly isNumber?: boolean;
  readonly cell: (row: Row) => Markup | string | number | null;
}

/** A table, or what to do where there is nothing to show. Who has no mouse scrolls a wide one by the keyboard. */
export function table<Row>(
  caption: string,
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  empty: Markup | string,
): Markup {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  return html`<div class="wide" role="group" aria-label="${caption}" tabindex="0"><table>
    <caption>${caption}</caption>
    <thead><tr>${columns.map(({ title, isNumber }) => html`<th scope="col" class="${isNumber ? "number" : ""}">${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map((column) => cellOf(column, row))}</tr>`)}</tbody>
  </table></div>`;
}

/** One without a value says so, and takes no room on a telephone. */
function cellOf<Row>({ title, isNumber, cell }: Column<Row>, row: Row): Markup {
  const says = cell(row);
  const looks = [isNumber ? "number" : "", String(says ?? "–") === "–" ? "none" : ""]
    .filter(Boolean)
    .join(" ");
  return html`<td data-of="${title}"${looks ? html` class="${looks}"` : ""}>${says ?? "–"}</td>`;
}
