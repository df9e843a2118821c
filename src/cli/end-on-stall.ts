/** The `holdfast` commands end the process on a stall; the library only reports the stall. */

import { type SettingOptions, settingsTable } from "../runtime/index.js";

/** Device options that end the process on a stall. The environment variable takes precedence. */
export function endOnStall(environment = process.env): Pick<SettingOptions, "onStall"> {
  return environment[settingsTable.onStall.variable] === undefined ? { onStall: "end" } : {};
}
