/** Run folders of earlier versions, stored compressed under test/fixtures/run-VERSION. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { gunzipSync } from "node:zlib";
import { makeFolder } from "./folders.js";
import { filesBelow, repositoryRoot } from "./repository.js";

/** Unpacks a stored run to a new folder and returns its path. */
export function unpackRun(version: string, name: string): string {
  const source = join("test/fixtures", `run-${version}`, name);
  const target = join(makeFolder(), name);
  for (const path of filesBelow(source, ".gz")) {
    const unpacked = join(target, relative(source, path).replace(/\.gz$/, ""));
    mkdirSync(dirname(unpacked), { recursive: true });
    writeFileSync(unpacked, gunzipSync(readFileSync(join(repositoryRoot, path))));
  }
  return target;
}
