/** Files are written completely or not at all, and errors name the cause and give advice. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { rejects } from "../../test/support/rejects.js";
import { removeLeftovers, type WriteBytes, writeAtomically } from "./atomic-write.js";

/** A disk with this much free space. */
function fullAfter(freeBytes: number, code = "ENOSPC"): WriteBytes {
  return (file, bytes, offset, length) => {
    if (freeBytes === 0) throw Object.assign(new Error(`${code}: the system's words, write`), { code });
    const written = writeSync(file, bytes, offset, Math.min(freeBytes, length));
    freeBytes -= written;
    return written;
  };
}

test("text and chunks are written completely and replace the old file, lasting or not", () => {
  const folder = makeFolder();
  const path = join(folder, "status.json");
  for (const lasting of [true, false]) {
    writeAtomically(path, "old", { lasting });
    writeAtomically(path, [Buffer.from("new "), Buffer.from("words")], { lasting });
    assert.equal(readFileSync(path, "utf8"), "new words");
  }
  assert.deepEqual(readdirSync(folder), ["status.json"]);
});

test("a file that takes several writes is complete", () => {
  const path = join(makeFolder(), "slow");
  writeAtomically(path, "many small writes", {
    write: (file, bytes, offset) => writeSync(file, bytes, offset, 1),
  });
  assert.equal(readFileSync(path, "utf8"), "many small writes");
});

test("an error names a full disk, and only the old file remains", () => {
  const folder = makeFolder();
  const path = join(folder, "model");
  writeAtomically(path, "old");
  for (const freeBytes of [0, 1, 7]) {
    const save = () => writeAtomically(path, "new words", { write: fullAfter(freeBytes) });
    rejects("BAD_FILE", save, /^.*model can't be written: ENOSPC.*The disk is full: free some space/);
    assert.equal(readFileSync(path, "utf8"), "old");
    assert.deepEqual(readdirSync(folder), ["model"]);
  }
});

test("each error of the system has its advice, on one line", () => {
  const folder = makeFolder();
  writeFileSync(join(folder, "file"), "");
  const onDisk = (code: string) => () =>
    writeAtomically(join(folder, "x"), "words", { write: fullAfter(0, code) });
  rejects("BAD_FILE", onDisk("EROFS"), /The disk is read-only/);
  rejects("BAD_FILE", onDisk("EACCES"), /change the permissions/);
  rejects("BAD_FILE", onDisk("EIO"), /The disk has failed/);
  rejects("BAD_FILE", onDisk("ESTRANGE"), /Check the path, the permissions and the free space/);
  rejects(
    "BAD_FILE",
    () => writeAtomically(join(folder, "none", "x"), ""),
    /^[^\n]*ENOENT[^\n]*Check the path: /,
  );
  rejects("BAD_FILE", () => writeAtomically(join(folder, "file", "x"), ""), /^[^\n]*ENOTDIR[^\n]*is a file/);
  rejects("BAD_FILE", () => removeLeftovers(join(folder, "none")), /can't be cleaned up: ENOENT/);
});

test("temporary files of dead processes are removed; those of live processes and other files stay", () => {
  const folder = makeFolder();
  const dead = spawnSync(process.execPath, ["-e", ""]).pid;
  const temporaryName = (pid: number) => `model.safetensors.${pid}-01234567-89ab-cdef-0123-456789abcdef.part`;
  for (const name of [
    temporaryName(dead),
    temporaryName(process.pid),
    temporaryName(process.ppid),
    "notes.part",
    "model",
  ])
    writeFileSync(join(folder, name), "");
  assert.deepEqual(
    [...removeLeftovers(folder)].sort(),
    [temporaryName(dead), temporaryName(process.pid)].sort(),
  );
  assert.deepEqual(readdirSync(folder).sort(), [temporaryName(process.ppid), "model", "notes.part"].sort());
});
