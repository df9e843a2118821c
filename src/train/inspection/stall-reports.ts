/** Stall reports in a run's folder, as trouble of the run: the watchdog wrote them from outside, so no log of the run has them. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { errorCode, fileError } from "../../data/index.js";
import { readRegularFile } from "../../files/index.js";
import { type StallReport, stallReportName, stallReportText } from "../../runtime/index.js";
import { formatDuration, MiB } from "../../units/index.js";
import type { TroubleRecord } from "./records.js";

/** The newest ones; a run that stalls that often has told enough. */
const maxReports = 1000;
const maxReportBytes = 4 * MiB;

/** Reads a folder's reports again and again; each file once, as they never change. */
export class StallReports {
  readonly #folder: string;
  readonly #known = new Map<string, TroubleRecord | string>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  read(): { readonly records: readonly TroubleRecord[]; readonly messages: readonly string[] } {
    const names = this.#list();
    for (const name of names)
      if (!this.#known.has(name)) this.#known.set(name, readReport(this.#folder, name));
    const found = names.flatMap((name) => this.#known.get(name) ?? []);
    return {
      records: found.filter((one) => typeof one !== "string"),
      messages: found.filter((one) => typeof one === "string"),
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

/** The record, or why there is none. */
function readReport(folder: string, name: string): TroubleRecord | string {
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
        ({ title, openMs }) => `${title} goes on, for ${formatDuration(openMs)}`,
      ),
    };
  } catch (error) {
    return `${name} can't be read: ${error instanceof Error ? error.message : String(error)}`;
  }
}
