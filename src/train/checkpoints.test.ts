/** Checkpoints: each is read back unchanged or rejected with the reason, and a complete one is never lost. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { makeFolder } from "../../test/support/folders.js";
import { patternedCheckpoint } from "../../test/support/patterned-checkpoint.js";
import { rejectionOf } from "../../test/support/rejections.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { writeSafetensors } from "../data/index.js";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./checkpoint-file.js";
import { CheckpointStore } from "./checkpoints.js";

const nameOf = (step: number): string => `step-${String(step).padStart(9, "0")}.safetensors`;

function sameCheckpoint(found: Checkpoint, expected: Checkpoint): void {
  assert.deepEqual([found.step, found.state], [expected.step, expected.state]);
  assert.deepEqual([...found.tensors.keys()].sort(), [...expected.tensors.keys()].sort());
  for (const [name, { dtype, shape, bytes }] of expected.tensors) {
    const tensor = found.tensors.get(name)!;
    assert.deepEqual([tensor.dtype, tensor.shape], [dtype, shape]);
    sameBytes(tensor.bytes, bytes, name);
  }
}

/** A store with the checkpoints of these steps. */
function storeOf(steps: readonly number[], keep = 10): CheckpointStore {
  const store = new CheckpointStore(join(makeFolder(), "checkpoints"), { keep });
  for (const step of steps) store.save(patternedCheckpoint(step, 64));
  return store;
}

test("a checkpoint is read back unchanged, by its name and as the latest", () => {
  const store = storeOf([1, 2]);
  sameCheckpoint(store.load("latest"), patternedCheckpoint(2, 64));
  sameCheckpoint(store.load(nameOf(1)), patternedCheckpoint(1, 64));
  assert.equal(store.load("latest").name, nameOf(2));
});

test("numbers that JSON can't express are restored in the state", () => {
  const state = {
    model: "m",
    losses: [Number.NaN, Number.POSITIVE_INFINITY, -0, 0.1],
    best: undefined,
    none: null,
  };
  const bytes = Buffer.concat(encodeCheckpoint({ step: 0, tensors: new Map(), state }));
  const { best: _, ...written } = state;
  assert.deepEqual(decodeCheckpoint(bytes).state, written);
});

test("a state that JSON can't store is rejected when it is saved", () => {
  for (const value of [1n, new Float32Array(2), new Map(), () => 1]) {
    const save = () => encodeCheckpoint({ step: 0, tensors: new Map(), state: { deep: [{ value }] } });
    rejects("BAD_ARGUMENT", save, /^state\.deep\[0\]\.value is a .* JSON can.t store/);
  }
  const at = (step: number) => () => encodeCheckpoint({ step, tensors: new Map(), state: {} });
  for (const step of [-1, 0.5, Number.NaN]) rejects("BAD_ARGUMENT", at(step), /step is/);
});

test("the last k are kept, and one of the same step is replaced", () => {
  const store = storeOf([1, 2, 3, 3, 10], 2);
  assert.deepEqual(
    store.list().map(({ step }) => step),
    [3, 10],
  );
  assert.deepEqual(readdirSync(store.folder).sort(), [nameOf(3), nameOf(10)]);
});

test("a missing folder has no checkpoint, and other files in a folder are ignored", () => {
  const folder = makeFolder();
  assert.deepEqual(new CheckpointStore(join(folder, "none")).list(), []);
  rejects("BAD_FILE", () => new CheckpointStore(join(folder, "none")).load("latest"), /no checkpoint.*none/);
  const others = [
    "notes.txt",
    "step-1.safetensors",
    "step-0000000001.safetensors",
    "step-00000000x.safetensors",
  ];
  for (const name of others) writeFileSync(join(folder, name), "");
  const store = new CheckpointStore(folder, { keep: 1 });
  for (const step of [4, 5]) store.save(patternedCheckpoint(step, 4));
  assert.deepEqual(readdirSync(folder).sort(), [...others, nameOf(5)].sort());
  rejects("BAD_FILE", () => store.load(nameOf(4)), /no checkpoint "step-000000004.*It has step-000000005/);
});

test("a file truncated anywhere is rejected with the reason, and the one before it is valid", () => {
  const store = storeOf([1, 2]);
  const path = join(store.folder, nameOf(2));
  const whole = readFileSync(path);
  const lengths = Array.from({ length: 20 }, (_, twentieth) => Math.floor((whole.length * twentieth) / 20));
  for (const length of [...lengths, 1, 7, 8, 9, whole.length - 1]) {
    writeFileSync(path, whole.subarray(0, length));
    rejects(
      "BAD_FILE",
      () => store.load("latest"),
      /^[^\n]*step-000000002\.safetensors is rejected: [^\n]+$/,
    );
    const { checkpoint, rejected } = store.loadLatestValid();
    sameCheckpoint(checkpoint!, patternedCheckpoint(1, 64));
    assert.deepEqual(
      rejected.map(({ name }) => name),
      [nameOf(2)],
    );
    assert.match(rejected[0]!.reason, /is rejected: /);
  }
  writeFileSync(path, whole);
  sameCheckpoint(store.load("latest"), patternedCheckpoint(2, 64));
});

test("a change of any byte of a file is detected, and the file is rejected with the reason", () => {
  const whole = Buffer.concat(encodeCheckpoint(patternedCheckpoint(3, 16)));
  for (let at = 0; at < whole.length; at++) {
    const altered = Buffer.from(whole);
    altered[at] = whole[at]! ^ (1 << (at % 8));
    const reason = rejectionOf(() => decodeCheckpoint(altered))?.message;
    assert.match(reason ?? "", /\S/, `byte ${at} of ${whole.length}`);
  }
});

test("replaced bytes anywhere are detected, in a large file too", () => {
  const whole = Buffer.concat(encodeCheckpoint(patternedCheckpoint(3)));
  const offset = fc.integer({ min: 0, max: whole.length - 1 });
  const put = fc.uint8Array({ minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(offset, put, (at, bytes) => {
      const altered = Buffer.from(whole);
      altered.set(bytes.subarray(0, whole.length - at), at);
      fc.pre(Buffer.compare(altered, whole) !== 0);
      rejects("BAD_FILE", () => decodeCheckpoint(altered));
    }),
    { numRuns: 100 },
  );
});

test("white space in the header counts too", () => {
  const text = Buffer.concat(encodeCheckpoint({ step: 1, tensors: new Map(), state: { a: "12" } }));
  const padded = text.lastIndexOf(" ");
  assert.ok(padded > 0, "no padding to alter");
  text[padded] = 0x0a;
  rejects("BAD_FILE", () => decodeCheckpoint(text), /It was altered: its header has the checksum/);
});

test("weights, another version and a renamed file are rejected with the reason", () => {
  const store = storeOf([7]);
  const path = join(store.folder, nameOf(7));
  const tensors = patternedCheckpoint(7, 4).tensors.values();
  const rewrite = (metadata: Record<string, string>) =>
    writeFileSync(path, writeSafetensors(tensors, new Map(Object.entries(metadata))));
  rewrite({});
  rejects("BAD_FILE", () => store.load("latest"), /It is a safetensors file, not a checkpoint/);
  rewrite({ format: "pt" });
  rejects("BAD_FILE", () => store.load("latest"), /Its format is "pt", not a checkpoint/);
  rewrite({ format: "holdfast checkpoint", version: "2" });
  rejects(
    "BAD_FILE",
    () => store.load("latest"),
    /has format version 2, but this Holdfast reads version 1\. Use the Holdfast/,
  );
  rewrite({ format: "holdfast checkpoint", version: "1" });
  rejects("BAD_FILE", () => store.load("latest"), /It was altered/);
  store.save(patternedCheckpoint(7, 4));
  renameSync(path, join(store.folder, nameOf(8)));
  rejects("BAD_FILE", () => store.load("latest"), /It contains step 7: the file was renamed/);
});

test("a state that contains a checksum pattern does not mislead", () => {
  const state = { text: `"sha256":"${"0".repeat(64)}"`, sha256: "0".repeat(64) };
  const bytes = Buffer.concat(encodeCheckpoint({ step: 5, tensors: new Map(), state }));
  assert.deepEqual(decodeCheckpoint(bytes).state, state);
});

test("a full disk leaves every earlier checkpoint, even one that the new checkpoint would have replaced", () => {
  const { folder } = storeOf([1, 2], 2);
  let room = 3000;
  const full = new CheckpointStore(folder, {
    keep: 2,
    write(file, bytes, offset, length) {
      if (room <= 0)
        throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
      room -= Math.min(length, 512);
      return writeSync(file, bytes, offset, Math.min(length, 512));
    },
  });
  rejects(
    "BAD_FILE",
    () => full.save(patternedCheckpoint(3)),
    /step-000000003.* can't be written: ENOSPC.*disk is full/,
  );
  assert.deepEqual(readdirSync(folder).sort(), [nameOf(1), nameOf(2)]);
  sameCheckpoint(full.load("latest"), patternedCheckpoint(2, 64));
});

test("a folder that can't be written is an error with advice", () => {
  const folder = makeFolder();
  writeFileSync(join(folder, "file"), "");
  const store = new CheckpointStore(join(folder, "file"));
  rejects("BAD_FILE", () => store.save(patternedCheckpoint(1, 4)), /can't be created: EEXIST/);
  rejects("BAD_FILE", () => store.list(), /can't be listed: ENOTDIR.*a component of it is a file/);
});

test("a read-only folder is an error that names the user", (t) => {
  if (process.getuid?.() === 0 || process.platform === "win32")
    return t.skip("this user may write everywhere");
  const folder = join(makeFolder(), "read-only");
  mkdirSync(folder, { mode: 0o500 });
  rejects(
    "BAD_FILE",
    () => new CheckpointStore(folder).save(patternedCheckpoint(1, 4)),
    /This user lacks the permission/,
  );
});

test("a run that resumes from an earlier checkpoint renames the later ones, and removes none", () => {
  const store = storeOf([1, 2, 3]);
  rejects("BAD_STATE", () => store.save(patternedCheckpoint(2, 64)), /has step-000000003.*later than step 2/);
  assert.deepEqual(
    store.continueFrom(1),
    [2, 3].map((step) => `${nameOf(step)}.superseded`),
  );
  store.save(patternedCheckpoint(2, 64));
  assert.deepEqual(readdirSync(store.folder).length, 4);
  assert.equal(store.load("latest").step, 2);
});

test("an invalid number to keep is rejected", () => {
  for (const keep of [0, -1, 1.5, Number.NaN])
    rejects("BAD_ARGUMENT", () => new CheckpointStore("anywhere", { keep }), /keep is/);
});
