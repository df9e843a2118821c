/** A folder as the bytes of its files, for tests that check that a command writes nothing. */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The path and a checksum of every file below a folder, and empty folders; without times. */
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
