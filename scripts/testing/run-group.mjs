// @ts-check
/**
 * Runs test files one after the other in one process, which saves starting node and loading the library for each. A file's
 * result is the same as in a process of its own: one that crashes, quits or hangs is a failure and is named, and the files after
 * it run in another process.
 */

import { fileURLToPath } from "node:url";
import { hasMark, splitAtMarks, unsharedExitCode } from "./group-protocol.mjs";
import { resultOf, runFile } from "./run-file.mjs";
import { tally } from "./tally.mjs";
import { runTestProcess } from "./test-process.mjs";

/**
 * @typedef {import("./files.mjs").TestFile} TestFile
 * @typedef {import("./run-file.mjs").FileResult} FileResult
 * @typedef {import("./event-log.mjs").TestRecord} TestRecord
 * @typedef {{ records: TestRecord[], isEnded: boolean }} Section one file's part of the log
 */

const entry = fileURLToPath(new URL("./group.mjs", import.meta.url));

/**
 * @param {readonly TestFile[]} files of one root
 * @param {number} timeoutMs for each file
 * @returns {Promise<FileResult[]>}
 */
export async function runGroup(files, timeoutMs) {
  const [first] = files;
  if (first === undefined) return [];
  if (files.length === 1) return [await runFile(first, timeoutMs)];

  const { root, isLong } = first;
  /** When each file began, and the last one ended. @type {number[]} */
  const times = [];
  const { ending, stdout, stderr, records } = await runTestProcess(
    [entry, ...files.map(({ compiled }) => compiled)],
    {
      ...{ root, isLong, timeoutMs },
      onOutput: (chunk, restartTimer) => {
        if (!hasMark(chunk)) return;
        times.push(performance.now());
        restartTimer();
      },
    },
  );
  times.push(performance.now());

  const sections = sectionsOf(records);
  const isWhole = records.some(({ type }) => type === "end");
  const outputs = /** @type {const} */ ([splitAtMarks(stdout), splitAtMarks(stderr)]);
  const ended = files.filter(({ compiled }) => sections.get(compiled)?.isEnded);
  const clean = { exitCode: 0, signal: null, isTimedOut: false };
  /**
   * @param {TestFile} file
   * @param {import("./test-process.mjs").Ending} how
   */
  const result = (file, how) => {
    const index = files.indexOf(file);
    const durationMs = (times[index + 1] ?? performance.now()) - (times[index] ?? performance.now());
    const output = outputs.map((streams) => streams.get(index) ?? "").join("");
    const counted = tally(sections.get(file.compiled)?.records ?? []);
    return resultOf(file.source, counted, { ending: how, timeoutMs, durationMs, output });
  };

  const hasFailure = ended.some((file) => result(file, clean).failed.length > 0);
  if (isWhole && ended.length === files.length) {
    // An exit code that no failed test explains, or a process that does not end, is told by the file alone that causes it.
    const isExplained = ending.exitCode === 0 || (ending.exitCode === 1 && hasFailure);
    if (isExplained) return files.map((file) => result(file, clean));
    return runAlone(files, timeoutMs);
  }
  // The process ended at one of its files. The files before it have ended, and those after it have not begun.
  const last = Math.max(...outputs[0].keys());
  const file = files[last];
  if (file === undefined || ended.length < last) return runAlone(files, timeoutMs);
  const isUnshared = ending.exitCode === unsharedExitCode;
  return [
    ...files.slice(0, last).map((before) => result(before, clean)),
    isUnshared ? await runFile(file, timeoutMs) : result(file, ending),
    ...(await runGroup(files.slice(last + 1), timeoutMs)),
  ];
}

/**
 * @param {readonly TestFile[]} files
 * @param {number} timeoutMs
 */
async function runAlone(files, timeoutMs) {
  const results = [];
  for (const file of files) results.push(await runFile(file, timeoutMs));
  return results;
}

/**
 * A file's records as if it had been alone: its suite is taken away, unless the suite itself failed, as where the file can't be
 * imported.
 *
 * @param {readonly TestRecord[]} records
 * @returns {Map<string, Section>} by the compiled file
 */
function sectionsOf(records) {
  /** @type {Map<string, Section>} */
  const sections = new Map();
  /** @type {Section | undefined} */
  let section;
  for (const record of records) {
    if (record.type === "end") continue;
    if (record.type === "note") {
      section?.records.push(record);
    } else if (record.nesting > 0) {
      section?.records.push({ ...record, nesting: record.nesting - 1 });
    } else if (record.type === "running") {
      section = { records: [], isEnded: false };
      sections.set(record.name, section);
    } else if (record.type === "ended" && section) {
      const isOwnFailure = record.failure && record.failure.kind !== "subtestsFailed";
      if (isOwnFailure) section.records.push({ ...record, name: "(the file)" });
      section.records.push({ type: "end" });
      section.isEnded = true;
    }
  }
  return sections;
}
