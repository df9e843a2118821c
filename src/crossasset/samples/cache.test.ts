/** Samples from disk: the same bits as computed samples, and nothing from any other file. */

import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { copyBars, randomBars } from "../../../test/support/random-bars.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameNamedBytes } from "../../../test/support/same-bytes.js";
import { loadSafetensors, saveSafetensors } from "../../data/index.js";
import { barColumns } from "../bars/bars.js";
import { cachedSamples, samplesVersion } from "./cache.js";
import { makeSamples, type Samples } from "./features.js";

const bars = randomBars(8000);
const settings = { stride: 30 };
const computed = makeSamples(bars, settings);

function inFolder(check: (folder: string) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-samples-"));
  try {
    check(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function sameSamples(found: Samples, expected: Samples, what: string): void {
  assert.equal(found.count, expected.count, what);
  const arrays = ({ bar, time, x, labels }: Samples) => ({ bar, time, x, labels });
  sameNamedBytes(arrays(found), arrays(expected), what);
}

/** Fills a folder, replaces the file, and checks that the cache detects and repairs it. */
function ignores(replace: (path: string) => void, reason: RegExp): void {
  inFolder((folder) => {
    cachedSamples(bars, settings, folder);
    const [name] = readdirSync(folder);
    replace(join(folder, name!));
    const again = cachedSamples(bars, settings, folder);
    assert.equal(again.fromCache, false);
    assert.match(again.skipReason ?? "", reason);
    sameSamples(again.samples, computed, "computed again");
    assert.equal(cachedSamples(bars, settings, folder).fromCache, true, "the file was not written again");
    assert.deepEqual(readdirSync(folder), [name]);
  });
}

test("the first call makes the samples, the second reads them, with the same bits", () => {
  inFolder((folder) => {
    const inner = join(folder, "not", "there yet");
    const first = cachedSamples(bars, settings, inner);
    const second = cachedSamples(bars, settings, inner);
    assert.deepEqual([first.fromCache, second.fromCache], [false, true]);
    assert.deepEqual([first.skipReason, second.skipReason], [undefined, undefined]);
    sameSamples(first.samples, computed, "the first");
    sameSamples(second.samples, computed, "the second");
    assert.equal(readdirSync(inner).length, 1);
  });
});

test("a file that others may write, a link and another user's file are ignored and written again", () => {
  ignores((path) => chmodSync(path, 0o664), /is writable by other users.*chmod go-w.*written again/);
  ignores((path) => chmodSync(path, 0o646), /is writable by other users/);
  ignores((path) => {
    rmSync(path);
    symlinkSync("/dev/null", path);
  }, /is not a regular file/);
});

test("a file or a folder of another user is not used", {
  skip: process.getuid?.() !== 0 && "needs root",
}, () => {
  ignores((path) => chownSync(path, 65_534, 65_534), /belongs to another user.*written again/);
  inFolder((folder) => {
    cachedSamples(bars, settings, folder);
    chownSync(folder, 65_534, 65_534);
    const { fromCache, skipReason } = cachedSamples(bars, settings, folder);
    assert.deepEqual([fromCache, skipReason?.includes("belongs to another user")], [false, true]);
  });
});

test("a folder that others may write to is not used, and nothing is written there", () => {
  inFolder((folder) => {
    chmodSync(folder, 0o777);
    const { samples, fromCache, skipReason } = cachedSamples(bars, settings, folder);
    sameSamples(samples, computed, "computed again");
    assert.equal(fromCache, false);
    assert.match(
      skipReason ?? "",
      /folder .* is writable by other users\. .*chmod go-w on it\. It is not used/,
    );
    assert.deepEqual(readdirSync(folder), []);
  });
});

test("with a loose umask, only this user can write the new files", () => {
  inFolder((folder) => {
    const inner = join(folder, "cache");
    const before = process.umask(0);
    try {
      cachedSamples(bars, settings, inner);
    } finally {
      process.umask(before);
    }
    assert.equal(statSync(inner).mode & 0o022, 0);
    assert.equal(cachedSamples(bars, settings, inner).fromCache, true);
  });
});

test("another stride, another value of any column and fewer bars have separate files", () => {
  inFolder((folder) => {
    cachedSamples(bars, settings, folder);
    assert.equal(cachedSamples(bars, { stride: 31 }, folder).fromCache, false);
    assert.equal(cachedSamples(copyBars(bars, 0, 7990), settings, folder).fromCache, false);
    // The last bit of a bar that no sample uses: the key covers all bytes.
    const bar = bars.volume.findIndex((volume) => volume > 0);
    for (const column of barColumns) {
      const changed = copyBars(bars);
      changed[column][bar]! *= column === "low" ? 1 - Number.EPSILON : 1 + Number.EPSILON;
      assert.equal(cachedSamples(changed, settings, folder).fromCache, false, column);
    }
    assert.equal(cachedSamples(copyBars(bars), settings, folder).fromCache, true);
  });
});

test("a missing stride and the default stride give the same samples", () => {
  inFolder((folder) => {
    cachedSamples(bars, {}, folder);
    assert.equal(cachedSamples(bars, { stride: 60 }, folder).fromCache, true);
  });
});

test("with the cache off, nothing is read or written", () => {
  const here = readdirSync(".");
  const { samples, fromCache } = cachedSamples(bars, settings, "off");
  assert.equal(fromCache, false);
  sameSamples(samples, computed, "computed again");
  assert.deepEqual(readdirSync("."), here);
});

test("a file that is truncated anywhere is ignored and written again", () => {
  for (const share of [0, 0.001, 0.01, 0.5, 0.99]) {
    const cut = (path: string) => {
      const whole = readFileSync(path);
      writeFileSync(path, whole.subarray(0, Math.floor(share * whole.length)));
    };
    ignores(cut, /can't be read/);
  }
});

test("a file with any one bit changed is ignored and written again", () => {
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), fc.nat(7), (share, bit) => {
      ignores((path) => flipBit(path, (length) => Math.floor(share * length), bit), /./);
    }),
    { numRuns: effort({ quick: 8, thorough: 30 }) },
  );
  const step = effort({ quick: 97, thorough: 23 });
  for (let byte = 0; byte < 700; byte += step) ignores((path) => flipBit(path, () => byte, byte % 8), /./);
});

function flipBit(path: string, byteOf: (length: number) => number, bit: number): void {
  const bytes = readFileSync(path);
  const byte = byteOf(bytes.length);
  bytes[byte] = bytes[byte]! ^ (1 << bit);
  writeFileSync(path, bytes);
}

test("a changed feature is found by the checksum", () => {
  ignores((path) => flipBit(path, (length) => length >> 1, 3), /a wrong checksum/);
});

test("a file of another kind is ignored and written again", () => {
  ignores((path) => writeFileSync(path, ""), /can't be read/);
  ignores((path) => writeFileSync(path, "time,open,high,low,close,volume\n".repeat(100)), /can't be read/);
  const weights = [{ name: "weight", dtype: "u8", shape: [1], bytes: new Uint8Array(1) }] as const;
  ignores((path) => saveSafetensors(path, weights), /made from other bars/);
});

test("a valid file of other bars is ignored, although it has the right name", () => {
  inFolder((other) => {
    cachedSamples(randomBars(8000, { seed: 2 }), settings, other);
    const [name] = readdirSync(other);
    ignores((path) => copyFileSync(join(other, name!), path), /made from other bars/);
  });
});

test("a file with the right key and a missing tensor, or another dtype, is ignored", () => {
  ignores((path) => {
    const { tensors, metadata } = loadSafetensors(path);
    const kept = [...tensors.values()].filter(({ name }) => name !== "labels");
    saveSafetensors(path, kept, metadata);
  }, /has no labels in i32/);
  ignores((path) => {
    const { tensors, metadata } = loadSafetensors(path);
    const recast = [...tensors.values()].map((tensor) =>
      tensor.name === "x" ? { ...tensor, dtype: "i32" as const } : tensor,
    );
    saveSafetensors(path, recast, metadata);
  }, /has no x in f32/);
});

test("a folder that can't be created is an error", () => {
  inFolder((folder) => {
    writeFileSync(join(folder, "taken"), "");
    const inFile = () => cachedSamples(bars, settings, join(folder, "taken", "samples"));
    rejects("BAD_FILE", inFile, /can't be created: ENOTDIR/);
  });
});

test("the numbers are those of this version; if they change, samplesVersion must change", () => {
  const sum = computed.x.reduce((total, value) => total + Math.abs(value), 0);
  const labels = computed.labels.reduce((total, label, index) => total + label * (index + 1), 0);
  assert.deepEqual(
    { samplesVersion, sum: sum.toPrecision(6), labels },
    { samplesVersion: 1, sum: "5846.13", labels: 869 },
  );
});
