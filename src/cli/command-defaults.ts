/** The settings whose default differs between the `holdfast` commands and the library. */

import { type SettingOptions, settingsTable } from "../runtime/index.js";

/** The commands end the process on a stall, where the library only reports it. They use an installed BLAS. */
const defaults = { onStall: "end", blas: "auto" } as const;

/** Device options of a command. Environment variables take precedence. */
export function commandDefaults(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Pick<SettingOptions, keyof typeof defaults> {
  const isUnset = ([name]: [string, unknown]): boolean =>
    environment[settingsTable[name as keyof typeof defaults].variable] === undefined;
  return Object.fromEntries(Object.entries(defaults).filter(isUnset));
}
