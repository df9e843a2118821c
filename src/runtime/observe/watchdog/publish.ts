/**
 * Makes a stall report known: the JSON file first, then the text on stderr. Whatever goes wrong with either is told
 * by the other. Each has a deadline, so that neither a full disk nor one that hangs can hold up the end of the run.
 */

import { write } from "node:fs";
import files from "node:fs/promises";
import { join, resolve } from "node:path";
import { formatDuration } from "../../../units/index.js";
import type { StallReport } from "./report.js";
import { stallReportText } from "./report-text.js";

const stderr = 2;
const patienceMs = 500;

/** The calls that a report's file needs; a test may give others. */
export type ReportFiles = Pick<typeof files, "mkdir" | "writeFile" | "rename" | "rm">;

/** Returns whether all of it got out; if not, a write may still be pending, and `process.exit` would wait for it. */
export async function publish(
  report: StallReport,
  folder: string,
  disk: ReportFiles = files,
): Promise<boolean> {
  const written = writeReport(folder, report, disk).catch(
    (error) => `could not be written: ${error instanceof Error ? error.message : String(error)}`,
  );
  const late = `not written after ${formatDuration(patienceMs)}: the disk does not answer`;
  const where = await within(written, late);
  const isPrinted = await printWithin(stallReportText(report, where), patienceMs);
  return isPrinted && where !== late;
}

/** The names that reports have. */
export const stallReportName = /^holdfast-stall-\d+-[\dTZ.]+\.json$/;

/** Writes aside and renames, so that a reader never meets half a file; what can't be written leaves none. Returns the path. */
export async function writeReport(
  folder: string,
  report: StallReport,
  disk: ReportFiles = files,
): Promise<string> {
  const time = report.time.replaceAll(/[-:]/g, "");
  const path = join(resolve(folder), `holdfast-stall-${report.pid}-${time}.json`);
  const aside = `${path}.part`;
  await disk.mkdir(resolve(folder), { recursive: true });
  try {
    await disk.writeFile(aside, `${JSON.stringify(report, null, 2)}\n`);
    await disk.rename(aside, path);
  } catch (error) {
    await disk.rm(aside, { force: true }).catch(() => {});
    throw error;
  }
  return path;
}

function within<Result>(work: Promise<Result>, late: Result): Promise<Result> {
  return new Promise((done) => {
    const timer = setTimeout(() => done(late), patienceMs);
    void work.then((result) => {
      clearTimeout(timer);
      done(result);
    });
  });
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
