// @ts-check
/**
 * Divides the test files among processes: small files in groups that share one, every other file alone; the longest jobs first, so
 * that the processes that run at once end together. Files whose tests mostly wait form a second list of jobs, which run next to the
 * others, one at a time.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * @typedef {import("./files.mjs").TestFile} TestFile
 * @typedef {{ files: TestFile[], seconds: number }} Job files that share a process
 * @typedef {{ busy: Job[], waiting: Job[] }} Jobs each list with the longest first
 */

/** Where the runner keeps how long files take; the files that it does not list are short. */
const durationsFile = "scripts/testing/durations.json";

/** Of a file that is not listed: in a group, and with the start of a process and of the library. */
const assumedSeconds = { shared: 0.2, alone: 0.8 };

/** A group has about so much work: enough to be worth its start, and not so much that one core waits for it in the end. */
const maxGroupSeconds = 12;
const maxGroupFiles = 30;

/**
 * Signs that a file needs a process of its own: it changes the process in a way that the runner of a group can't detect, or it has
 * `@ownProcess` with a reason.
 */
const ownProcessSigns = [
  /"node:(?:v8|vm)"/,
  /\bprocess\.(?:exit|exitCode|on|once|chdir|abort|title|umask)\b/,
  /support\/(?:gc|disturbed|power-loss|system-calls|failing-calls|browser)[a-z-]*\.js"/,
  /@ownProcess\b/,
];

/** Marks a file whose tests mostly wait for processes or time limits and use little processor time. The reason follows the mark. */
const waitingSign = /@mostlyWaits\b/;

/**
 * @param {readonly TestFile[]} files
 * @param {{ canShare: boolean }} options
 * @returns {Jobs}
 */
export function planJobs(files, { canShare }) {
  const durations = readDurations(files[0]?.root);
  /** @type {Jobs} */
  const jobs = { busy: [], waiting: [] };
  /** @type {Record<keyof Jobs, { file: TestFile, seconds: number }[]>} */
  const shared = { busy: [], waiting: [] };
  for (const file of files) {
    const text = readFileSync(join(file.root, file.source), "utf8");
    const kind = waitingSign.test(text) ? "waiting" : "busy";
    const listed = durations[file.source];
    if (canShare && !ownProcessSigns.some((sign) => sign.test(text)))
      shared[kind].push({ file, seconds: listed ?? assumedSeconds.shared });
    else jobs[kind].push({ files: [file], seconds: listed ?? assumedSeconds.alone });
  }
  for (const kind of /** @type {const} */ (["busy", "waiting"])) {
    jobs[kind].push(...groupsOf(shared[kind]));
    jobs[kind].sort((a, b) => b.seconds - a.seconds);
  }
  return jobs;
}

/**
 * @param {readonly { file: TestFile, seconds: number }[]} shared
 * @returns {Job[]}
 */
function groupsOf(shared) {
  /** @type {Job[]} */
  const groups = [];
  /** @type {Job | undefined} */
  let open;
  for (const { file, seconds } of shared) {
    if (!open || open.files.length >= maxGroupFiles || open.seconds + seconds > maxGroupSeconds) {
      open = { files: [], seconds: assumedSeconds.alone };
      groups.push(open);
    }
    open.files.push(file);
    open.seconds += seconds;
  }
  return groups;
}

/**
 * @param {string | undefined} root
 * @returns {Readonly<Record<string, number>>} seconds by source file
 */
function readDurations(root) {
  if (root === undefined) return {};
  try {
    return JSON.parse(readFileSync(join(root, durationsFile), "utf8"));
  } catch {
    // Without the table the order is worse, and nothing else.
    return {};
  }
}

/** Files that take less are not listed. */
const minListedSeconds = 1;

/**
 * @param {string} root
 * @param {readonly import("./run-file.mjs").FileResult[]} results
 */
export function writeDurations(root, results) {
  const slow = results
    .map(({ source, durationMs }) => /** @type {const} */ ([source, Math.round(durationMs / 100) / 10]))
    .filter(([, seconds]) => seconds >= minListedSeconds)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(join(root, durationsFile), `${JSON.stringify(Object.fromEntries(slow), undefined, 2)}\n`);
}
