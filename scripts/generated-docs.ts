/** The pages of docs/ that are made from tables in the code, as pure functions from table to text. */

import { type ErrorCode, errorCodes, exitCodes, exitForCode } from "../src/errors/index.js";
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
    notice("src/errors/"),
    "# Errors and exit codes",
    "Every error that Holdfast throws on purpose is a `HoldfastError`. Its `code` is one of the codes below and does not change from version to version. Its message names the case and its figures; `numbers` has the figures for programs. `holdfast explain CODE` prints an entry of this page.",
    "## Exit codes",
    "The `holdfast` command ends with one of these codes. The last column says what the same command does when it is run again; the Job in [deploy/](../deploy/README.md) follows it.",
    [
      "| code | meaning | the same command again |",
      "|---|---|---|",
      ...Object.values(exitCodes).map(({ code, meaning, retry }) => `| ${code} | ${meaning} | ${retry} |`),
    ].join("\n"),
    "An error ends the command with the exit code of its entry below. There is one exception: where the system's own reason can pass (a full or failing disk, a port in use, too many open files), the exit code is 1. `holdfast doctor` and `holdfast health` end with 1 where they find something wrong.",
    ...Object.entries(errorCodes).flatMap(([code, { meaning, help }]) => [
      `## ${code}`,
      meaning,
      `**What helps:** ${help}`,
      `**Exit code:** ${exitCodes[exitForCode(code as ErrorCode)].code}`,
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
