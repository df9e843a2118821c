/** The pages and tables of docs/ that are generated from tables in the code, as pure functions from table to text. */

import { planRules } from "../src/compile/verify/verify.js";
import { type ErrorCode, errorCodes, exitCodes, exitForCode } from "../src/errors/index.js";
import { families, rejections, translations } from "../src/onnx/translate/table.js";
import { opTable } from "../src/ops/index.js";
import { settingsTable } from "../src/runtime/index.js";
import { coveragePage } from "./coverage/page.js";

/** A setting, as the page shows it. */
export interface SettingRow {
  readonly variable: string;
  readonly kind: string;
  readonly defaultText: string;
  readonly meaning: string;
  /** A value that the setting takes. */
  readonly example: string;
}

/** The pages that are generated, whole or in part, by their path from the repository's root. `read` reads a page. */
export function generatedPages(read: (path: string) => string): Readonly<Record<string, string>> {
  const compiler = "docs/internals/compiler.md";
  const onnx = "docs/onnx.md";
  return {
    "docs/coverage.md": coveragePage(JSON.parse(read("test/oracle/torch-names.json"))),
    "docs/errors.md": errorsPage(),
    "docs/settings.md": settingsPage(settingsTable),
    [onnx]: replaceTable(read(onnx), "src/onnx/translate/table.ts", onnxTable()),
    [compiler]: replaceTable(read(compiler), "src/compile/verify/plan-error.ts", rulesTable()),
  };
}

const notice = (table: string) =>
  `<!-- Generated from ${table} by \`npm run docs\`: change the table, not this page. -->`;

/** Replaces the lines of a table that follow its notice. */
export function replaceTable(page: string, source: string, table: string): string {
  const head = `${notice(source)}\n\n`;
  const start = page.indexOf(head);
  if (start < 0) throw new Error(`The page has no table from ${source}.`);
  const end = page.indexOf("\n\n", start + head.length);
  return `${page.slice(0, start)}${head}${table}${end < 0 ? "\n" : page.slice(end)}`;
}

function rulesTable(): string {
  const rows = Object.entries(planRules).map(([rule, meaning]) => `| \`${rule}\` | ${meaning} |`);
  return ["| rule | meaning |", "|---|---|", ...rows].join("\n");
}

/** Each entry of the op table once: by family, as other ops, or rejected. */
function onnxTable(): string {
  const listed = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");
  const row = (what: string, names: readonly string[], nodes = ""): string =>
    `| ${what} | ${listed([...names].sort())} | ${nodes} |`;
  const composites = Object.values(opTable).flatMap(({ name, kind }) =>
    kind === "composite" && !translations.has(name) && !rejections.has(name) ? [name] : [],
  );
  const reasons = [...new Set(rejections.values())];
  return [
    "| family | ops | ONNX operators |",
    "|---|---|---|",
    ...Object.entries(families).map(([family, { translations: ops, nodes }]) =>
      row(family, Object.keys(ops), listed(nodes)),
    ),
    row("exported as other ops", composites, "those of the other ops"),
    ...reasons.map((reason) =>
      row(
        `rejected: ${reason}`,
        [...rejections].flatMap(([name, why]) => (why === reason ? [name] : [])),
        "none",
      ),
    ),
  ].join("\n");
}

export function errorsPage(): string {
  return page([
    notice("src/errors/"),
    "# Errors and exit codes",
    "Every error that Holdfast throws on purpose is a `HoldfastError`. Its `code` is one of the codes below. Its message states the problem and the numbers. The field `numbers` has the numbers for programs. `holdfast explain CODE` prints an entry of this page. A *storage* is a range of device memory, and a *span* is an address range: most errors about them come only to programs that use `holdfast/internals`.",
    "## Exit codes",
    "The `holdfast` command ends with one of these codes. The last column says what happens if you run the same command again. The Job in [deploy/](../deploy/README.md) retries by this column.",
    [
      "| code | meaning | the same command again |",
      "|---|---|---|",
      ...Object.values(exitCodes).map(({ code, meaning, retry }) => `| ${code} | ${meaning} | ${retry} |`),
    ].join("\n"),
    "An error ends the command with the exit code of its entry below. There is one exception: if the cause may be temporary (a full or failing disk, a port in use, too many open files), the exit code is 1. `holdfast doctor` and `holdfast health` end with 1 if they find something wrong.",
    ...Object.entries(errorCodes).flatMap(([code, { meaning, help }]) => [
      `## ${code}`,
      meaning,
      `**What helps:** ${help}`,
      `**Exit code:** ${exitCodes[exitForCode(code as ErrorCode)].code}`,
    ]),
  ]);
}

/** The keys of the table are the options: `{ memory: { variable: "HOLDFAST_MEMORY", … } }`. */
export function settingsPage(table: Readonly<Record<string, SettingRow>>): string {
  return page([
    notice("src/runtime/settings.ts"),
    "# Settings",
    "Each setting is an option in code and an environment variable. The option overrides the variable, and the variable overrides the default.",
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

const lineWidth = 150;

function page(paragraphs: readonly string[]): string {
  const lines = paragraphs.map((text) => (/^[|#<-]/.test(text) ? text : wrapProse(text)));
  return `${lines.join("\n\n")}\n`;
}

/** Breaks a paragraph between words, so that no line is longer than the width. */
function wrapProse(text: string): string {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > lineWidth) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line].join("\n");
}
