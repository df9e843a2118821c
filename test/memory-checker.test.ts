/** A memory checker knows exactly the memory in use; without a tool, the driver reports nothing. */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { openCuda } from "../src/driver/cuda/calls.js";
import { openMemoryChecker } from "../src/driver/cuda/memory-checker.js";
import { loadKoffi } from "../src/driver/foreign-functions.js";
import { type CudaDriver, openCudaDriver } from "../src/driver/index.js";
import { openRuntime, type Runtime } from "../src/runtime/index.js";
import { bytes, MiB, type Span, span } from "../src/units/index.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const attached = { HOLDFAST_CUDA_PATH: emulator?.folder, NVTX_INJECTION64_PATH: "/opt/tool.so" };

/** The memory that the tool knows through NVTX. */
function openTool() {
  const library = loadKoffi().load(`${emulator.folder}/libnvtx3interop.so.1`);
  const inPool = library.func("int emulator_pool_holds(uint64_t address, uint64_t size)");
  const inUse = library.func("int emulator_region_holds(uint64_t address, uint64_t size)");
  const pools = library.func("uint64_t emulator_pools()");
  const regions = library.func("uint64_t emulator_regions()");
  const errors = library.func("uint64_t emulator_nvtx_errors()");
  return {
    hasPool: ({ address, size }: Span): boolean => inPool(address, size) === 1,
    hasInUse: (address: number, size: number): boolean => inUse(address, size) === 1,
    counts: () => ({ pools: Number(pools()), regions: Number(regions()), errors: Number(errors()) }),
  };
}

function withRuntime(use: (opened: { runtime: Runtime; driver: CudaDriver }) => void): void {
  const driver = openCudaDriver({ environment: attached });
  const quiet = { stallAfter: "off", environment: {}, print: () => {} } as const;
  const sizes = { memory: "64MiB", arena: "16MiB", staging: "1MiB", chunk: bytes(2 * MiB) };
  const runtime = openRuntime({ driver, ...sizes, ...quiet });
  try {
    use({ runtime, driver });
  } finally {
    runtime.close();
    driver.close();
  }
}

test("without a tool the driver has no annotate", { skip }, () => {
  const driver = openCudaDriver({ environment: { HOLDFAST_CUDA_PATH: emulator.folder } });
  assert.equal(driver.annotate, undefined);
  driver.close();
});

test("the bytes of a storage are in use, its padding is not, and none are after its step", { skip }, () => {
  withRuntime(({ runtime }) => {
    const tool = openTool();
    const address = runtime.step(() => {
      const { span } = runtime.arena.allocate(100, "test");
      assert.ok(tool.hasPool(span));
      assert.ok(tool.hasInUse(span.address, 100));
      assert.ok(!tool.hasInUse(span.address + 99, 2), "the padding is in use");
      return span.address;
    });
    assert.ok(!tool.hasInUse(address, 1), "a dead storage is in use");
  });
});

test("a placed region is in use until it is released, and its pool ends with it", { skip }, () => {
  withRuntime(({ runtime }) => {
    const tool = openTool();
    const region = runtime.persistent.place("weights", "test", [
      { name: "a", size: 300 },
      { name: "b", size: 4 },
    ]);
    assert.ok(tool.hasInUse(region.span.address, region.span.size));
    runtime.persistent.release(region);
    assert.ok(!tool.hasPool(region.span));
  });
});

test("a span across the boundary of two commits is in use on both sides of it", { skip }, () => {
  const driver = openCudaDriver({ environment: attached });
  const tool = openTool();
  const { address } = driver.reserve(bytes(2 * MiB));
  const whole = span(address, bytes(2 * MiB));
  for (const start of [0, MiB]) driver.commit(span(address + start, bytes(MiB)));
  driver.annotate?.(whole, "live");
  assert.ok(!tool.hasPool(whole), "no boundary is inside the span");
  assert.ok(tool.hasInUse(address, MiB) && tool.hasInUse(address + MiB, MiB));
  driver.annotate?.(whole, "dead");
  assert.ok(!tool.hasInUse(address, 1) && !tool.hasInUse(address + MiB, 1));
  driver.close();
});

test("everything ends with the runtime", { skip }, () => {
  const tool = openTool();
  const before = tool.counts();
  withRuntime(({ runtime }) => runtime.arena.allocate(4, "left"));
  assert.deepEqual(tool.counts(), before);
});

test("a program without stray accesses has no error: only allocations become pools, and only their spans regions", {
  skip,
}, () => {
  const tool = openTool();
  const before = tool.counts().errors;
  withRuntime(({ runtime, driver }) => {
    assert.equal(driver.describe().canCommitInParts, false);
    const region = runtime.persistent.place("weights", "test", [{ name: "a", size: 300 }]);
    for (let step = 0; step < 2; step++) runtime.step(() => runtime.arena.allocate(3 * MiB, "test"));
    runtime.persistent.release(region);
  });
  assert.equal(tool.counts().errors - before, 0);
});

test("red proof: mapped memory as a pool is an error", { skip }, () => {
  const tool = openTool();
  const before = tool.counts().errors;
  const environment = { HOLDFAST_CUDA_PATH: emulator.folder };
  const driver = openCudaDriver({ environment });
  const mapped = driver.reserve(bytes(2 * MiB));
  driver.commit(mapped);
  const checker = openMemoryChecker(openCuda({ environment }), attached);
  assert.equal(checker?.addPool(mapped), false);
  checker?.setState(mapped, "live");
  assert.equal(tool.counts().errors - before, 1, "no region follows a rejected pool");
  checker?.close();
  driver.close();
});

test("under a tool that has no pools, such as a profiler, memory is mapped and nothing is reported", {
  skip,
}, () => {
  emulator.fail("nvtxMemHeapRegister", 1);
  const driver = openCudaDriver({ environment: attached });
  assert.equal(driver.annotate, undefined);
  assert.equal(driver.describe().canCommitInParts, true);
  assert.equal(emulator.calls("nvtxMemHeapRegister"), 1);
  driver.close();
});
