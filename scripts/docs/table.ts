/** A table of a page. */
export function rows(head: readonly string[], body: readonly (readonly string[])[]): string {
  const line = (row: readonly string[]) =>
    `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), `|${"---|".repeat(head.length)}`, ...body.map(line)].join("\n");
}
