/** Folders for tests: a fresh one each, removed after the file's last test. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

export function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-test-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
