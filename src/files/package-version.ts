/** The version of this Holdfast, from package.json. */

import { readFileSync } from "node:fs";
import { HoldfastError } from "../errors/index.js";
import { packagePath } from "./package-path.js";

export function packageVersion(): string {
  const path = packagePath("package.json");
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    throw new HoldfastError(
      "BAD_FILE",
      `${path} can't be read: ${(cause as Error).message}. Install Holdfast again.`,
      {
        cause,
      },
    );
  }
  const manifest: unknown = JSON.parse(text);
  const isManifest = typeof manifest === "object" && manifest !== null && "version" in manifest;
  return isManifest ? String(manifest.version) : "unknown";
}
