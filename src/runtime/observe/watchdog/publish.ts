/**
 * Publishes a stall report: the JSON file first, then the text on stderr. Each reports a failure of the other. Both
 * have a deadline, so that a full or hung disk cannot delay the end of the run.
 */

import { write } from "node:fs";
import files from "node:fs/promises";
import { join, resolve } from "node:path";
import { formatDuration } from "../../../units/index.js";
import type { StallReport } from "./report.js";
import { stallReportText } from "./report-text.js";

const stderr = 2;
const defaultTimeoutMs = 500;

/** The file calls of a report; a test may replace them. */
export type ReportFiles = Pick<typeof files, "mkdir" | "writeFile" | "rename" | "rm">;

/**
 * Publishes a report. Returns true if everything was written. If not, a write may be pending, and `process.exit` would
 * wait for it.
 */
export async function publish(
  report: StallReport,
  folder: string,
  disk: ReportFiles = files,
  timeoutMs = defaultTimeoutMs,
): Promise<boolean> {
  const written = writeReport(folder, report, disk).catch(
    (error) => `could not be written: ${error instanceof Error ? error.message : String(error)}`,
  );
  const late = `not written after ${formatDuration(timeoutMs)}: the disk does not respond`;
  const where = await withTimeout(written, late, timeoutMs);
  const isPrinted = await printWithTimeout(stallReportText(report, where), timeoutMs);
  return isPrinted && where !== late;
}

/** Matches the file names of reports. */
export const stallReportName = /^holdfast-stall-\d+-[\dTZ.]+\.json$/;

/**
 * Writes a temporary file and renames it, so that a reader never sees a partial file. On failure no file is left.
 * Returns the path.
 */
export async function writeReport(
  folder: string,
  report: StallReport,
  disk: ReportFiles = files,
): Promise<string> {
  const time = report.time.replaceAll(/[-:]/g, "");
  const path = join(resolve(folder), `holdfast-stall-${report.pid}-${time}.json`);
  const temporaryPath = `${path}.part`;
  await disk.mkdir(resolve(folder), { recursive: true });
  try {
    await disk.writeFile(temporaryPath, `${JSON.stringify(report, null, 2)}\n`);
    await disk.rename(temporaryPath, path);
  } catch (error) {
    await disk.rm(temporaryPath, { force: true }).catch(() => {});
    throw error;
  }
  return path;
}

function withTimeout<Result>(work: Promise<Result>, late: Result, timeoutMs: number): Promise<Result> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(late), timeoutMs);
    void work.then((result) => {
      clearTimeout(timer);
      resolve(result);
    });
  });
}

/**
 * Prints on stderr from any thread: a worker's console needs the main thread, which may be stuck. It gives up after the
 * limit: a run can stall because no process reads its stderr.
 */
export function printWithTimeout(text: string, limitMs: number, fd = stderr): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), limitMs);
    const finish = (isPrinted: boolean) => {
      clearTimeout(timer);
      resolve(isPrinted);
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
