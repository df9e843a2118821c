/** Stall reports as incidents. The watchdog writes them from another process, so the run's own logs do not contain them. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { errorCode, fileError } from "../../data/index.js";
import { readRegularFile } from "../../files/index.js";
import type { IncidentRecord } from "../../records/index.js";
import { type StallReport, stallReportName, stallReportText } from "../../runtime/index.js";
import { formatDuration, MiB } from "../../units/index.js";

/** The newest reports are read, at most this many. */
const maxReports = 1000;
const maxReportBytes = 4 * MiB;

/** Reads a folder's reports repeatedly. Each file is read once, because reports never change. */
export class StallReports {
  readonly #folder: string;
  readonly #reports = new Map<string, IncidentRecord | string>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  read(): { readonly records: readonly IncidentRecord[]; readonly messages: readonly string[] } {
    const names = this.#list();
    for (const name of names)
      if (!this.#reports.has(name)) this.#reports.set(name, readReport(this.#folder, name));
    const reports = names.flatMap((name) => this.#reports.get(name) ?? []);
    return {
      records: reports.filter((report) => typeof report !== "string"),
      messages: reports.filter((report) => typeof report === "string"),
    };
  }

  #list(): readonly string[] {
    try {
      return readdirSync(this.#folder)
        .filter((name) => stallReportName.test(name))
        .sort()
        .slice(-maxReports);
    } catch (error) {
      if (errorCode(error) === "ENOENT" || errorCode(error) === "ENOTDIR") return [];
      throw fileError(`${this.#folder} can't be read`, this.#folder, error);
    }
  }
}

/** The record, or a message that says why it can't be read. */
function readReport(folder: string, name: string): IncidentRecord | string {
  try {
    const report = JSON.parse(
      readRegularFile(join(folder, name), maxReportBytes).toString("utf8"),
    ) as StallReport;
    const [sentence = "", ...rest] = stallReportText(report, name).split("\n");
    const time = Date.parse(report.time);
    if (!Number.isFinite(time) || !Number.isFinite(report.what.step))
      throw new Error("It has no time or no step.");
    return {
      ...{ kind: "stall", time, step: report.what.step },
      message: sentence.replace(/^holdfast: stalled: /, ""),
      details: rest.join("\n").trimEnd(),
      phases: report.what.phases.map(
        ({ title, openMs }) => `${title} is running for ${formatDuration(openMs)}`,
      ),
    };
  } catch (error) {
    return `${name} can't be read: ${error instanceof Error ? error.message : String(error)}`;
  }
}
