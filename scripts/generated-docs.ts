/** The pages of docs/ that are made from tables in the code, as pure functions from table to text. */

import { errorCodes } from "../src/errors/index.js";
import { settingsTable } from "../src/runtime/index.js";

/** What the page tells of a setting. */
export interface SettingRow {
  readonly variable: string;
  readonly kind: string;
  readonly defaultText: string;
  readonly meaning: string;
  /** A value that the setting takes. */
  readonly example: string;
}

/** The generated pages, by their path from the repository's root. */
export function generatedPages(): Readonly<Record<string, string>> {
  return { "docs/errors.md": errorsPage(), "docs/settings.md": settingsPage(settingsTable) };
}

const notice = (table: string) =>
  `<!-- Made from ${table} by \`npm run docs\`: change the table, not this page. -->`;

export function errorsPage(): string {
  return page([
    notice("src/errors/codes.ts"),
    "# Errors",
    "Everything that Holdfast throws on purpose is a `HoldfastError`. Its `code` is one of these and stays stable from version to version; its message has the numbers of the case at hand, and its `numbers` has them for programs.",
    ...Object.entries(errorCodes).flatMap(([code, { meaning, help }]) => [
      `## ${code}`,
      meaning,
      `**What helps:** ${help}`,
    ]),
  ]);
}

/** The table is given by option: `{ memory: { variable: "HOLDFAST_MEMORY", … } }`. */
export function settingsPage(table: Readonly<Record<string, SettingRow>>): string {
  return page([
    notice("src/runtime/settings.ts"),
    "# Settings",
    "Each setting is an option in code and a variable in the environment. The option wins over the variable, and the variable over the default.",
    ...Object.entries(table).flatMap(([option, row]) => [
      `## ${row.variable}`,
      row.meaning,
      [
        `- **Option:** \`${option}\``,
        `- **Takes:** ${row.kind}`,
        `- **Default:** ${row.defaultText}`,
        `- **Example:** \`${row.variable}=${row.example}\``,
      ].join("\n"),
    ]),
  ]);
}

function page(paragraphs: readonly string[]): string {
  return `${paragraphs.join("\n\n")}\n`;
}
