/** A folder as the bytes of its files, for tests that hold a command to writing nothing. */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Of every file below a folder its path and a checksum of its bytes; empty folders count too. Times don't. */
export function bytesIn(folder: string, below = ""): Readonly<Record<string, string>> {
  const entries = readdirSync(join(folder, below), { withFileTypes: true });
  return Object.fromEntries(
    entries.flatMap((entry): (readonly [string, string])[] => {
      const path = join(below, entry.name);
      if (!entry.isDirectory()) return [[path, sumOf(readFileSync(join(folder, path)))]];
      return [[`${path}/`, "a folder"], ...Object.entries(bytesIn(folder, path))];
    }),
  );
}

function sumOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}
