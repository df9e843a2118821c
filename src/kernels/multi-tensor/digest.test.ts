/**
 * Digests of memory: equal for equal bytes, different if a byte changes or two words change places. Captures compare large results by
 * them.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { openRuntime, type Runtime, type Storage } from "holdfast/internals";

import { cudaMissing, openCudaKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { openTestGpu } from "../../../test/support/test-device.js";
import { interceptCalls, strict } from "../../driver/index.js";
import { compareOnDevice } from "../backend.js";
import { submit } from "../submit.js";
import { lowerDigestsOnCuda } from "./digest.js";

const skip = cudaMissing;
const runtime = skip ? undefined! : openCudaKernelRuntime();
const chunkBytes = 1024;

/** The digests of all bytes after the first `offset`. */
function digestsOf(bytes: Uint8Array, offset = 0): readonly bigint[] {
  return runtime.step(() => {
    const memory = runtime.view(put(runtime, bytes, "bytes"), offset, bytes.length - offset);
    const digests = runtime.arena.allocate(8 * Math.ceil((bytes.length - offset) / chunkBytes), "digests");
    submit(runtime, [lowerDigestsOnCuda(memory, chunkBytes, digests)]);
    return [...new BigUint64Array(runtime.read(digests).buffer)];
  });
}

/** The chunks whose digests differ. */
function changedChunks(before: readonly bigint[], after: readonly bigint[]): readonly number[] {
  assert.equal(before.length, after.length);
  return before.flatMap((digest, chunk) => (digest === after[chunk] ? [] : [chunk]));
}

describe("digests of memory on CUDA", { skip }, () => {
  const random = fc.sample(
    fc.uint8Array({ minLength: 3 * chunkBytes + 29, maxLength: 3 * chunkBytes + 29 }),
    {
      ...{ seed: 5, numRuns: 1 },
    },
  )[0]!;

  for (const offset of [0, 4, 5]) {
    test(`from byte ${offset} on, one digest changes if one bit does, in its chunk`, () => {
      const before = digestsOf(random, offset);
      assert.equal(before.length, 4);
      assert.deepEqual(digestsOf(random.slice(), offset), before);
      const last = random.length - 1;
      for (const byte of [0, 1, 15, 16, chunkBytes - 1, chunkBytes, 3 * chunkBytes + 7, last - offset]) {
        const changed = random.slice();
        changed[offset + byte]! ^= 1 << (byte % 8);
        assert.deepEqual(changedChunks(before, digestsOf(changed, offset)), [Math.floor(byte / chunkBytes)]);
      }
    });
  }

  test("words that change places, and zeros in another number, change it", () => {
    const swapped = random.slice();
    swapped.copyWithin(40, 44, 48);
    swapped.set(random.subarray(40, 44), 44);
    assert.deepEqual(changedChunks(digestsOf(random), digestsOf(swapped)), [0]);
    assert.notDeepEqual(digestsOf(new Uint8Array(64)), digestsOf(new Uint8Array(80)));
  });

  test("a repeated chunk has the same digest, so memory is compared chunk by chunk", () => {
    const [first, second] = digestsOf(new Uint8Array(2 * chunkBytes).fill(7));
    assert.equal(first, second);
  });
});

/** A byte in the fourth chunk of 64 KiB. */
const alteredByte = 200_001;
const stateBytes = 300_000;

interface Replaying {
  /** Whether every replay alters a byte of its results. */
  readonly isFaulty: boolean;
  readonly memory: string;
}

/** Captures a copy between two storages; returns how many bytes were read back. */
function captureCopy({ isFaulty, memory }: Replaying): number {
  let state: Storage | undefined;
  const gpu = openTestGpu();
  const driver = interceptCalls(gpu, (call, [stream], proceed) => {
    const result = proceed();
    if (isFaulty && call === "launchGraph" && state) {
      const address = (state.span.address + alteredByte) as typeof state.span.address;
      gpu.fill(stream as Runtime["stream"], { address, size: 1 as typeof state.span.size }, 9);
    }
    return result;
  });
  const runtime = openRuntime({
    ...{ driver: strict(driver), memory, staging: "1MiB", capture: "on", stallAfter: "off" },
    ...{ environment: {}, print: () => {} },
  });
  try {
    compareOnDevice(runtime);
    const placed = ["state", "source"].map((name) => ({ name, size: stateBytes }));
    const [target, source] = runtime.persistent.place("weights", "pair", placed).storages;
    assert.ok(target && source);
    state = target;
    runtime.upload([{ source: new Uint8Array(stateBytes).fill(3), target: source }]);
    const before = runtime.read(target);
    const readBefore = runtime.diagnostics().transfers.down.bytes;
    try {
      runtime.capture("copy", () => runtime.copy(target, source));
    } finally {
      assert.deepEqual(runtime.read(target), before, "a capture restores what it writes");
    }
    return runtime.diagnostics().transfers.down.bytes - readBefore - stateBytes;
  } finally {
    runtime.close();
    gpu.close();
  }
}

describe("a capture on CUDA", { skip: cudaMissing }, () => {
  const roomy = "64MiB";
  /** The pair and the staging memory take most of it. */
  const tight = "5MiB";

  test("compares its results on the device", () => {
    const digests = 2 * 8 * Math.ceil(stateBytes / 65_536);
    assert.equal(captureCopy({ isFaulty: false, memory: roomy }), digests);
  });

  test("reads its results back if there is no room for copies", () => {
    assert.equal(captureCopy({ isFaulty: false, memory: tight }), 3 * stateBytes);
  });

  for (const memory of [roomy, tight]) {
    test(`with ${memory}, rejects a replay that differs in one byte`, () => {
      assert.throws(() => captureCopy({ isFaulty: true, memory }), {
        ...{ code: "CAPTURE_MISMATCH", message: /first in "state", in bytes 196608 to 262144 of its memory/ },
      });
    });
  }
});
