/** Text in columns for printed reports: rows are aligned, long names cut, long sentences wrapped. */

/** Maximum width of a report. */
export const reportWidth = 120;

export interface Column {
  readonly title: string;
  readonly align: "left" | "right";
  /** Longer texts are cut. Default: as wide as the longest text. */
  readonly max?: number;
}

/** A table with its titles in the first line and two spaces between columns. */
export function formatColumns(columns: readonly Column[], rows: readonly (readonly string[])[]): string[] {
  const widths = columns.map(({ title, max = Infinity }, index) => {
    let widest = title.length;
    for (const row of rows) widest = Math.max(widest, row[index]?.length ?? 0);
    return Math.min(widest, max);
  });
  const line = (texts: readonly string[]): string => {
    const cells = columns.map(({ align }, index) => {
      const width = widths[index] ?? 0;
      const text = cutText(texts[index] ?? "", width);
      return align === "left" ? text.padEnd(width) : text.padStart(width);
    });
    return cells.join("  ").trimEnd();
  };
  return [line(columns.map(({ title }) => title)), ...rows.map(line)];
}

/** Cuts a text to a maximum length; an ellipsis marks the cut. */
export function cutText(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, Math.max(0, maxLength - 1))}…`;
}

/** Breaks a text between words into lines of at most `width` characters; a longer word has a line of its own. */
export function wrapText(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
