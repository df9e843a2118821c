/** Commands of `holdfast` end the process on a stall; the library only reports it. */

import { type SettingOptions, settingsTable } from "../runtime/index.js";

/** Device options that end the process on a stall, unless the environment says otherwise. */
export function endOnStall(environment = process.env): Pick<SettingOptions, "onStall"> {
  return environment[settingsTable.onStall.variable] === undefined ? { onStall: "end" } : {};
}
