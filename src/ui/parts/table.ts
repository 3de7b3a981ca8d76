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
    <tbody>${rows.map(
      (row) =>
        html`<tr>${columns.map(({ title, cell, isNumber }) => html`<td data-of="${title}"${isNumber ? html` class="number"` : ""}>${cell(row) ?? "–"}</td>`)}</tr>`,
    )}</tbody>
  </table></div>`;
}
