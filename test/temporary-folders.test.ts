/** Files that make temporary folders also remove them: each run of the tests would leave some more. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { filesBelow, readRepositoryFile } from "./support/repository.js";

/** True for code, without the examples in comments, that makes a folder and removes none. */
function leavesFolders(text: string): boolean {
  const code = text.replace(/^ *\*.*$/gm, "");
  return /\bmkdtemp(Sync)?\(/.test(code) && !/\brm(Sync)?\(/.test(code);
}

test("every file that makes a temporary folder removes folders", () => {
  const files = ["src", "test", "bench", "scripts", "examples"].flatMap((folder) => [
    ...filesBelow(folder, ".ts"),
    ...filesBelow(folder, ".mjs"),
  ]);
  assert.ok(files.length > 1000);
  assert.deepEqual(
    files.filter((file) => leavesFolders(readRepositoryFile(file))),
    [],
    "use makeFolder() of test/support/folders.ts",
  );
});

test("red proof: a folder that stays is found, and an example in a comment is not", () => {
  const making = "const folder = mkdtempSync(join(tmpdir(), prefix));";
  assert.ok(leavesFolders(making));
  assert.ok(!leavesFolders(`${making}\nafter(() => rmSync(folder, { recursive: true }));`));
  assert.ok(!leavesFolders(` * ${making}`));
});
