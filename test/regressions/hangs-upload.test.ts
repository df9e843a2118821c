/** Regressions, hangs in uploads: H1 and H2 at their real size, and H14. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { bytes, type Driver, type Runtime, type Storage, strict, type UploadItem } from "holdfast/internals";
import { type HostMemory, type HostSpan, interceptCalls, type Stream } from "../../src/driver/index.js";
import { alignment } from "../../src/runtime/index.js";
import {
  crossAssetWeights,
  distinctValues,
  elementsOf,
  uploadWeights,
} from "../support/crossasset-weights.js";
import { regressionRow } from "../support/regressions.js";
import { withRuntime } from "../support/runtimes.js";
import { sameBytes } from "../support/same-bytes.js";

const weightCount = 2_174_211;
const rowsThatFailed = 213_304;
const features = 193;
const maxCalls = 60;

test("the 50 weights of CrossAsset have 2,174,211 parameters", () => {
  assert.equal(crossAssetWeights.length, 50);
  assert.equal(
    crossAssetWeights.reduce((sum, weight) => sum + elementsOf(weight), 0),
    weightCount,
  );
});

/** A way to upload the data set. */
interface UploadMethod {
  readonly rows: number;
  readonly allocate: (runtime: Runtime, sizes: readonly number[]) => readonly Storage[];
  readonly upload: (runtime: Runtime, items: readonly UploadItem[]) => void;
}

const engineMethod: UploadMethod = {
  rows: rowsThatFailed,
  allocate: (runtime, sizes) =>
    runtime.persistent.place(
      "data set",
      "rows",
      sizes.map((size) => ({ name: "row", size })),
    ).storages,
  upload: (runtime, items) => void runtime.upload(items),
};

/** Stops an upload at the first call over the limit: two hundred thousand calls would take the old way's time. */
function withLimit(limit: number, inner: Driver): Driver {
  const counts = new Map<string, number>();
  return interceptCalls(inner, (call, _args, proceed) => {
    const count = (counts.get(call) ?? 0) + 1;
    counts.set(call, count);
    const isCounted = call === "reserve" || call === "commit" || call === "copyToDevice";
    if (isCounted) assert.ok(count <= limit, `${call} was called more than ${limit} times`);
    return proceed();
  });
}

/** The rows of the data set, as many as the largest method needs. */
const rowsOfData = once(() => {
  const values = distinctValues(rowsThatFailed * features, weightCount); // [rows, 193]
  return Array.from({ length: rowsThatFailed }, (_, row) =>
    values.subarray(row * features, (row + 1) * features),
  );
});

interface Uploaded {
  readonly tensors: number;
  readonly copies: number;
}

/** Uploads the data set and the weights, and checks that they arrived whole and aligned. */
function uploadAll({ rows, allocate, upload }: UploadMethod): Uploaded {
  const sources = rowsOfData().slice(0, rows);
  return withRuntime(
    // The ring of a real run: the number of copies depends on it.
    { memory: "512MiB", arena: "64MiB", staging: "32MiB" },
    ({ runtime, device }) => {
      const targets = allocate(
        runtime,
        sources.map((source) => source.byteLength),
      );
      const data = targets.map((target, row) => ({ source: sources[row]!, target }));
      upload(runtime, data);
      const items = [...data, ...uploadWeights(runtime).items];
      runtime.synchronize();
      for (const { source, target } of items) {
        if (target.span.address % alignment !== 0) assert.fail(`${target.label} is not aligned`);
        sameBytes(device.deviceBytes(target.span), source, target.label);
      }
      sameBytes(runtime.read(data.at(-1)!.target), sources.at(-1)!, "the last row, as read");
      return runtime.diagnostics().transfers.up;
    },
    (device) => strict(withLimit(maxCalls, device)),
  );
}

/** The engine's own upload, which both rows look at. */
const uploadByEngine = once(() => uploadAll(engineMethod));

function uploadBy(method: UploadMethod): Uploaded {
  return method === engineMethod ? uploadByEngine() : uploadAll(method);
}

function once<Result>(make: () => Result): () => Result {
  let made: { readonly result: Result } | undefined;
  return () => {
    made ??= { result: make() };
    return made.result;
  };
}

function requireFailingSize({ tensors }: Uploaded): void {
  assert.equal(tensors, rowsThatFailed + 50, "only the size that failed proves anything");
}

regressionRow<UploadMethod>({
  row: "H1",
  rule: "213,304 rows and the 50 weights are uploaded whole and aligned, in at most 60 copies and as few allocations",
  sound: engineMethod,
  faults: {
    "a copy for each tensor": {
      ...engineMethod,
      upload: (runtime, items) => {
        for (const item of items) runtime.upload([item]);
      },
    },
    "an allocation for each tensor": {
      ...engineMethod,
      allocate: (runtime, sizes) => sizes.flatMap((size) => engineMethod.allocate(runtime, [size])),
    },
  },
  check: (method) => {
    const uploaded = uploadBy(method);
    requireFailingSize(uploaded);
    assert.ok(uploaded.copies <= maxCalls, `${uploaded.copies} copies`);
  },
});

regressionRow<UploadMethod>({
  row: "H2",
  rule: "the test of H1 runs at the size that failed",
  sound: engineMethod,
  faults: { "256 tensors, reported as done": { ...engineMethod, rows: 256 } },
  check: (method) => requireFailingSize(uploadBy(method)),
});

/** Host bytes of every possible origin. */
function sourcesOfEveryOrigin(folder: string): Record<string, Uint8Array> {
  const path = join(folder, "rows.bin");
  writeFileSync(path, distinctBytes(5000));
  const shared = new Uint8Array(new SharedArrayBuffer(5000));
  shared.set(distinctBytes(5000));
  return {
    // Small buffers share a pool: this one has an offset in it.
    "a buffer of Node's pool": Buffer.from(distinctBytes(1000)),
    "a view that begins at an odd byte": distinctBytes(5000).subarray(3, 4003),
    "shared memory": shared.subarray(100, 4100),
    "a file's bytes": readFileSync(path),
  };
}

function distinctBytes(count: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: count }, (_, at) => (at * 151) % 251);
}

function withSources(use: (sources: Record<string, Uint8Array>) => void): void {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-regression-"));
  try {
    use(sourcesOfEveryOrigin(folder));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Rejects copies from any memory that this driver has not pinned. */
function onlyFromPinned(inner: Driver): Driver {
  const pinned = new Set<unknown>();
  return interceptCalls(inner, (call, args, proceed) => {
    if (call === "copyToDevice") {
      const { memory } = args[2] as HostSpan;
      assert.ok(pinned.has(memory), `a copy from host memory ${memory.id}, which is not pinned`);
    }
    const result = proceed();
    if (call === "allocateHost") pinned.add(result);
    return result;
  });
}

/** The old way: the driver is told that the caller's bytes are pinned. */
function copyStraight(driver: Driver, stream: Stream, { source, target }: UploadItem): void {
  const size = target.span.size;
  assert.equal(source.byteLength, size);
  const pretended: HostMemory = { type: "host", id: 4711, size };
  driver.copyToDevice(stream, target.span, { memory: pretended, offset: bytes(0), size });
}

type Copy = (runtime: Runtime, driver: Driver, item: UploadItem) => void;

function checkCopies(copy: Copy, wrap: (device: Driver) => Driver): void {
  withSources((sources) => {
    let driver: Driver | undefined;
    const wrapAndKeep = (device: Driver): Driver => {
      driver = wrap(device);
      return driver;
    };
    withRuntime(
      { memory: "64MiB" },
      ({ runtime }) => {
        for (const [origin, source] of Object.entries(sources)) {
          const [target] = runtime.persistent.place("data set", origin, [
            { name: origin, size: source.length },
          ]).storages;
          const original = Uint8Array.from(source);
          copy(runtime, driver!, { source, target: target! });
          // The caller may reuse the bytes: the copy may not have started yet.
          source.fill(0);
          sameBytes(runtime.read(target!), original, origin);
        }
      },
      wrapAndKeep,
    );
  });
}

regressionRow<Copy>({
  row: "H14",
  rule: "every byte is uploaded from our own pinned staging, wherever it came from",
  sound: (runtime, _driver, item) => void runtime.upload([item]),
  faults: {
    "a copy straight from the caller's memory": (runtime, driver, item) =>
      copyStraight(driver, runtime.stream, item),
  },
  check: (copy) => checkCopies(copy, onlyFromPinned),
});

test("H14: the strict driver accepts uploads, and rejects a copy from foreign memory by name", () => {
  checkCopies((runtime, _driver, item) => void runtime.upload([item]), strict);
  assert.throws(
    () => checkCopies((runtime, driver, item) => copyStraight(driver, runtime.stream, item), strict),
    { code: "FOREIGN_MEMORY", message: /Host memory 4711 is not open pinned memory/ },
  );
});
