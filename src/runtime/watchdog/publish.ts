/**
 * Makes a stall report known: the JSON file first, then the text on stderr. Whatever goes wrong with either is told
 * by the other, and neither can hold up the end of the run.
 */

import { mkdirSync, renameSync, write, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { StallReport } from "./report.js";
import { stallReportText } from "./report-text.js";

const stderr = 2;
const patienceMs = 500;

/** Returns whether the text got out; if not, a write may still be pending, and `process.exit` would wait for it. */
export function publish(report: StallReport, folder: string): Promise<boolean> {
  let where: string;
  try {
    where = writeReport(folder, report);
  } catch (error) {
    where = `could not be written: ${error instanceof Error ? error.message : String(error)}`;
  }
  return printWithin(stallReportText(report, where), patienceMs);
}

/** The names that reports have. */
export const stallReportName = /^holdfast-stall-\d+-[\dTZ.]+\.json$/;

/** Writes aside and renames, so that a reader never meets half a file. Returns the path. */
export function writeReport(folder: string, report: StallReport): string {
  const time = report.time.replaceAll(/[-:]/g, "");
  const path = join(resolve(folder), `holdfast-stall-${report.pid}-${time}.json`);
  const aside = `${path}.part`;
  mkdirSync(resolve(folder), { recursive: true });
  writeFileSync(aside, `${JSON.stringify(report, null, 2)}\n`);
  renameSync(aside, path);
  return path;
}

/**
 * Prints on stderr from any thread: a worker's console needs the main thread, which may be the one that is stuck.
 * Nor may this wait for ever: a run can stall because nobody reads its stderr.
 */
export function printWithin(text: string, limitMs: number, fd = stderr): Promise<boolean> {
  return new Promise((done) => {
    const timer = setTimeout(() => done(false), limitMs);
    const finish = (isPrinted: boolean) => {
      clearTimeout(timer);
      done(isPrinted);
    };
    const attempt = (rest: Buffer) =>
      write(fd, rest, (error, written) => {
        if (error?.code === "EAGAIN") setTimeout(attempt, 10, rest).unref();
        else if (error) finish(false);
        else if (written < rest.length) attempt(rest.subarray(written));
        else finish(true);
      });
    attempt(Buffer.from(text));
  });
}
