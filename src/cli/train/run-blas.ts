/** The BLAS library of a run. It changes the last bits of the result, so a run records it and resumes only with the same one. */

import { type Runtime, type SettingOptions, settingsTable } from "../../runtime/index.js";
import { readRunRecord } from "../../train/index.js";

/** The setting of a run that uses a library: its version and all else that its bits depend on. Runs without one have no such setting. */
export function blasSetting({ blas, device }: Pick<Runtime, "blas" | "device">): { readonly blas?: string } {
  const { parallelism: threads } = device;
  return blas ? { blas: `${blas.name}, ${threads} ${threads === 1 ? "thread" : "threads"}` } : {};
}

/**
 * The device option of the run in a folder. A run that started without a library resumes without one, even if one is installed now.
 * The environment variable takes precedence.
 */
export function blasForRun(
  path: string,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Pick<SettingOptions, "blas"> {
  const run = readRunRecord(path);
  const isChosen = environment[settingsTable.blas.variable] !== undefined;
  return run && run.settings["blas"] === undefined && !isChosen ? { blas: "off" } : {};
}
