// @ts-check
/**
 * The process of a group: runs test files one after the other, each as a suite that has the file's name. A file that leaves
 * something running, or changes the process for the files after it, ends the group: the runner gives that file a process of its
 * own, and the rest a fresh one.
 *
 *   node group.mjs FILE…   absolute paths of compiled test files
 */

import { after, describe } from "node:test";
import { pathToFileURL } from "node:url";
import { fileMark, unsharedExitCode } from "./group-protocol.mjs";

/** Transient resources go away within some turns of the event loop. */
const maxTurns = 200;
/** File requests, among them the reporter's own writes, end by themselves, but a crowded machine may take long. */
const fileRequests = ["FSReqCallback", "FSReqPromise"];
const maxRequestMs = 10_000;

const files = process.argv.slice(2);
for (const [index, file] of files.entries()) {
  // On both streams, so that the runner can tell which file has printed what.
  process.stdout.write(fileMark(index));
  process.stderr.write(fileMark(index));
  const state = processState();
  const resources = activeResources();
  await runAsSuite(file);
  // In this order: what was still under way may have thrown by then, and set the exit code.
  if ((await leavesResources(resources)) || processState() !== state) process.exit(unsharedExitCode);
}

/** @param {string} file */
function runAsSuite(file) {
  return new Promise((resolve) => {
    describe(file, async () => {
      try {
        await import(pathToFileURL(file).href);
      } finally {
        // Hooks run in order: the file's own come first.
        after(() => resolve(undefined));
      }
    });
  });
}

function processState() {
  return JSON.stringify([process.exitCode ?? 0, process.cwd(), process.env]);
}

/** How many there are of each kind of resource that keeps the process alive. */
function activeResources() {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const kind of process.getActiveResourcesInfo()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/** @param {ReadonlyMap<string, number>} before */
async function leavesResources(before) {
  const startedAt = performance.now();
  for (let turn = 0; ; turn++) {
    // Not setImmediate() again and again: it would take the processor that the requests wait for.
    await new Promise((resolve) => (turn < maxTurns ? setImmediate(resolve) : setTimeout(resolve, 2)));
    const left = [...activeResources()].filter(([kind, count]) => count > (before.get(kind) ?? 0));
    if (left.length === 0) return false;
    const mayEnd = left.every(([kind]) => fileRequests.includes(kind));
    if (turn >= maxTurns && !(mayEnd && performance.now() - startedAt < maxRequestMs)) return true;
  }
}
