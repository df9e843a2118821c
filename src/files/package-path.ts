/** Paths of files in Holdfast's package. */

import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { HoldfastError } from "../errors/index.js";

/**
 * The path of a file in the package: `packagePath("package.json")`. It is resolved by the package's name, because a bundled module is not
 * in the folder of its source. It is resolved at the call, so that importing Holdfast looks for no files.
 */
export function packagePath(...names: readonly string[]): string {
  return join(packageFolder(), ...names);
}

function packageFolder(): string {
  try {
    return dirname(createRequire(import.meta.url).resolve("holdfast/package.json"));
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new HoldfastError(
      "BAD_FILE",
      `Holdfast's own package.json cannot be found (${reason}). Check the disk, or install the package again.`,
      { cause },
    );
  }
}
