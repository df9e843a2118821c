/** Text graphics: sparklines, bars and tables; and text from files made safe for a terminal. */

const heights = "▁▂▃▄▅▆▇█";

/** A sparkline, one character per value; an unknown value is a dot. */
export function sparkline(values: ArrayLike<number>): string {
  const finite = Array.from(values).filter(Number.isFinite);
  const min = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const max = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const step = (max - min) / (heights.length - 1);
  return Array.from(values, (value) => {
    if (!Number.isFinite(value)) return "·";
    return heights[step > 0 ? Math.round((value - min) / step) : 0] ?? "";
  }).join("");
}

/** A progress bar. */
export function progressBar(share: number, width: number): string {
  const full = Math.round(Math.min(1, Math.max(0, share)) * width);
  return "━".repeat(full) + "─".repeat(width - full);
}

const shades = ["█", "▓", "▒", "░"] as const;

/** A stacked bar; neighbours have different shades, and the rest is empty. */
export function stackedBar(sizes: readonly number[], total: number, width: number): string {
  let [bar, sum] = ["", 0];
  for (const [index, size] of sizes.entries()) {
    sum += size;
    const end = Math.min(width, Math.round((sum / Math.max(total, 1)) * width));
    bar += shadeOf(index).repeat(Math.max(0, end - bar.length));
  }
  return bar.padEnd(width, "·");
}

export function shadeOf(index: number): string {
  return shades[index % shades.length] ?? "█";
}

/** A table with two spaces between columns; numbers are right-aligned. */
export function tableLines(rows: readonly (readonly string[])[], leftColumns: readonly number[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return leftColumns.includes(column) ? cell.padEnd(width) : cell.padStart(width);
      })
      .join("  ")
      .trimEnd(),
  );
}

/** One line, truncated to the columns. Control characters are removed: a file must not control the terminal. */
export function fitLine(text: string, columns: number): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are removed.
  const safe = text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, " ");
  return safe.length <= columns ? safe : `${safe.slice(0, Math.max(0, columns - 1))}…`;
}
