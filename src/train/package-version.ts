/** The version of this Holdfast, from package.json. */

import { readFileSync } from "node:fs";
import { withFileError } from "../data/index.js";
import { packagePath } from "../files/index.js";

export function packageVersion(): string {
  const path = packagePath("package.json");
  const text = withFileError(`${path} can't be read`, path, () => readFileSync(path, "utf8"));
  const manifest: unknown = JSON.parse(text);
  const isManifest = typeof manifest === "object" && manifest !== null && "version" in manifest;
  return isManifest ? String(manifest.version) : "unknown";
}
