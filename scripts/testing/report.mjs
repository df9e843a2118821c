// @ts-check
/** What `npm test` prints: a line for each file as it ends, its notes, and the summary. Colour only on a terminal. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";

const slowestCount = 5;
const outputLinesShown = 60;

/** @typedef {import("./run-file.mjs").FileResult} FileResult */

/**
 * Keeps the result of the long suites as a file, for a person to commit: the date, each file's line, the summary.
 *
 * @param {string} root
 * @param {readonly FileResult[]} results
 * @param {string} text the summary
 */
export function keepLongResult(root, results, text) {
  const folder = join(root, "bench/results");
  mkdirSync(folder, { recursive: true });
  const date = new Date().toISOString().slice(0, 10);
  const lines = results.map(fileLine).sort();
  const all = [
    `npm run test:long, ${date}, node ${process.version}, ${process.arch}`,
    "",
    ...lines,
    text,
    "",
  ];
  const path = join(
    folder,
    `${date}-test-long-node${process.versions.node.split(".")[0]}-${process.arch}.txt`,
  );
  writeFileSync(path, stripVTControlCharacters(all.join("\n")));
}

/** @param {FileResult} file */
export function fileLine({ source, durationMs, passed, failed, skipped, notes }) {
  const word = failed.length > 0 ? paint("red", "FAIL") : paint("green", "ok  ");
  const counts = [`${passed.length} passed`];
  if (failed.length > 0) counts.push(`${failed.length} failed`);
  if (skipped.length > 0) counts.push(`${skipped.length} skipped`);
  const line = `${word} ${source}  ${counts.join(", ")}  ${seconds(durationMs)}`;
  return [line, ...notes.map((note) => `     note: ${note}`)].join("\n");
}

/**
 * @param {readonly FileResult[]} unordered in the order in which they ended
 * @param {number} durationMs
 * @returns {{ text: string, isGood: boolean }}
 */
export function summary(unordered, durationMs) {
  const files = unordered.toSorted((a, b) => (a.source < b.source ? -1 : 1));
  const passed = files.reduce((sum, file) => sum + file.passed.length, 0);
  const failed = files.reduce((sum, file) => sum + file.failed.length, 0);
  const skipped = files.reduce((sum, file) => sum + file.skipped.length, 0);
  const isGood = failed === 0 && passed > 0;
  const closing = `${passed} passed, ${failed} failed, ${skipped} skipped`;
  const lines = [
    ...failures(files),
    ...slowest(files),
    ...skips(files),
    "",
    `${files.length} files in ${seconds(durationMs)}`,
    paint(isGood ? "green" : "red", closing),
  ];
  return { text: lines.join("\n"), isGood };
}

/** @param {readonly FileResult[]} files */
function failures(files) {
  const lines = [];
  for (const file of files.filter(({ failed }) => failed.length > 0)) {
    for (const { name, text } of file.failed) {
      lines.push("", paint("red", `FAIL ${file.source} › ${name}`), indent(text));
    }
    const output = file.output.trimEnd().split("\n");
    if (output.join("").length > 0) {
      const shown = output.slice(-outputLinesShown);
      const note =
        shown.length < output.length ? ` (the last ${shown.length} of ${output.length} lines)` : "";
      lines.push("", `printed by ${file.source}${note}:`, indent(shown.join("\n")));
    }
  }
  return lines;
}

/** @param {readonly FileResult[]} files */
function slowest(files) {
  const tests = files.flatMap((file) => file.passed.map((test) => ({ ...test, source: file.source })));
  const shown = tests.sort((a, b) => b.durationMs - a.durationMs).slice(0, slowestCount);
  if (shown.length === 0) return [];
  return [
    "",
    "slowest:",
    ...shown.map((test) => `  ${seconds(test.durationMs)}  ${test.source} › ${test.name}`),
  ];
}

/** @param {readonly FileResult[]} files */
function skips(files) {
  /** @type {Map<string, string[]>} */
  const byReason = new Map();
  for (const file of files) {
    for (const { name, reason } of file.skipped) {
      byReason.set(reason, [...(byReason.get(reason) ?? []), `  ${file.source} › ${name}`]);
    }
  }
  const groups = [...byReason].map(([reason, names]) => [`skipped: ${names.length} × ${reason}`, ...names]);
  return groups.length > 0 ? ["", ...groups.flat()] : [];
}

/** @param {number} durationMs */
function seconds(durationMs) {
  return `${(durationMs / 1000).toFixed(durationMs < 100 ? 3 : 1)}s`;
}

/** @param {string} text */
function indent(text) {
  return text.replace(/^(?=.)/gm, "  ");
}

/**
 * @param {"red" | "green"} colour
 * @param {string} text
 */
function paint(colour, text) {
  if (!process.stdout.isTTY || process.env.NO_COLOR) return text;
  return `\x1b[${colour === "red" ? 31 : 32}m${text}\x1b[39m`;
}
