/** Tables as CSV (RFC 4180). */

export type Cell = string | number | boolean | null | undefined;

/** Unknown values are empty cells. */
export function toCsv(head: readonly string[], rows: Iterable<readonly Cell[]>): string {
  const lines = [head.map(quote).join(",")];
  for (const row of rows) lines.push(row.map(quote).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function quote(cell: Cell): string {
  if (cell === null || cell === undefined || Number.isNaN(cell)) return "";
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
