/** Paths of files in Holdfast's package. */

import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** Resolved by the package's name, because a bundled module is not in the folder of its source. */
const root = dirname(createRequire(import.meta.url).resolve("holdfast/package.json"));

/** @example packagePath("package.json") */
export function packagePath(...names: readonly string[]): string {
  return join(root, ...names);
}
