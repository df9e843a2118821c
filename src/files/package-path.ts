/** Paths of files in Holdfast's own package. */

import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** By the package's name, because a bundled module is not where its source is. */
const root = dirname(createRequire(import.meta.url).resolve("holdfast/package.json"));

/** @example packagePath("package.json") */
export function packagePath(...names: readonly string[]): string {
  return join(root, ...names);
}
