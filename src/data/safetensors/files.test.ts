/** Safetensors on disk: a save is complete or changes nothing, and errors have the path. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { rejectionOf } from "../../../test/support/rejections.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { loadSafetensors, saveSafetensors } from "./files.js";
import type { StoredTensor } from "./format.js";
import { writeSafetensors } from "./write.js";

const tensors: readonly StoredTensor[] = [
  { name: "a", dtype: "f32", shape: [2], bytes: new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]) },
  { name: "b", dtype: "u8", shape: [], bytes: new Uint8Array([9]) },
];
const metadata = new Map([["epoch", "3"]]);

function inFolder(check: (folder: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-safetensors-"));
  try {
    check(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("a saved file has the bytes of a file written in memory, and loads", () => {
  inFolder((folder) => {
    const path = join(folder, "model.safetensors");
    saveSafetensors(path, tensors, metadata);
    sameBytes(readFileSync(path), writeSafetensors(tensors, metadata), "the file");
    const loaded = loadSafetensors(path);
    assert.deepEqual([...loaded.tensors.values()], tensors);
    assert.deepEqual(loaded.metadata, metadata);
  });
});

test("a save replaces the old file and leaves no other file", () => {
  inFolder((folder) => {
    const path = join(folder, "model.safetensors");
    saveSafetensors(path, tensors);
    saveSafetensors(path, tensors.slice(0, 1));
    assert.equal(loadSafetensors(path).tensors.size, 1);
    assert.deepEqual(readdirSync(folder), ["model.safetensors"]);
  });
});

test("tensors that can't be written do not change the old file", () => {
  inFolder((folder) => {
    const path = join(folder, "model.safetensors");
    saveSafetensors(path, tensors);
    const before = readFileSync(path);
    rejects("BAD_ARGUMENT", () => saveSafetensors(path, [...tensors, ...tensors]), /is a duplicate/);
    sameBytes(readFileSync(path), before, "the old file");
    assert.deepEqual(readdirSync(folder), ["model.safetensors"]);
  });
});

test("a save whose rename fails leaves no temporary file", () => {
  inFolder((folder) => {
    const path = join(folder, "taken");
    mkdirSync(path);
    rejects("BAD_FILE", () => saveSafetensors(path, tensors), /taken can't be written: EISDIR/);
    assert.deepEqual(readdirSync(folder), ["taken"]);
  });
});

test("a path that can't be written is an error with the path and the cause", () => {
  inFolder((folder) => {
    writeFileSync(join(folder, "file"), "");
    for (const path of [join(folder, "none", "model"), join(folder, "file", "model"), "nul\0byte"]) {
      const error = rejectionOf(() => saveSafetensors(path, tensors));
      assert.equal(error?.code, "BAD_FILE");
      assert.equal(error?.numbers["path"], path);
      assert.ok(error?.cause instanceof Error);
    }
  });
});

test("a missing file is an error with the path and the cause", () => {
  const error = rejectionOf(() => loadSafetensors("/no/such/model.safetensors"));
  assert.equal(error?.code, "BAD_FILE");
  assert.match(
    error?.message ?? "",
    /^\/no\/such\/model\.safetensors can't be read: ENOENT.* Check the path/,
  );
  assert.match(String(error?.cause), /ENOENT/);
});

test("a path that is not a regular file is rejected, and a pipe without a writer does not block", (t) => {
  inFolder((folder) => {
    rejects("BAD_FILE", () => loadSafetensors(folder), /a folder, a pipe or a device/);
    if (process.platform === "win32") return t.skip("Windows has no named pipes in folders");
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    rejects("BAD_FILE", () => loadSafetensors(pipe), /a folder, a pipe or a device/);
  });
});

test("a damaged file is rejected with its path and the fault", () => {
  inFolder((folder) => {
    const path = join(folder, "cut.safetensors");
    writeFileSync(path, writeSafetensors(tensors).subarray(0, -1));
    const error = rejectionOf(() => loadSafetensors(path));
    assert.match(error?.message ?? "", /cut\.safetensors can't be read: Tensor "b" is at \[8, 9\)/);
    assert.deepEqual([error?.numbers["path"], error?.numbers["dataBytes"]], [path, 8]);
  });
});
