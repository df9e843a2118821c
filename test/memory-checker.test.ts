/** A memory checker knows exactly the memory in use; without a tool, the driver reports nothing. */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { loadKoffi } from "../src/driver/foreign-functions.js";
import { type CudaDriver, type CudaDriverOptions, openCudaDriver } from "../src/driver/index.js";
import { openRuntime, type Runtime } from "../src/runtime/index.js";
import { bytes, MiB, type Span } from "../src/units/index.js";
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
  return {
    hasPool: ({ address, size }: Span): boolean => inPool(address, size) === 1,
    hasInUse: (address: number, size: number): boolean => inUse(address, size) === 1,
    counts: () => ({ pools: Number(pools()), regions: Number(regions()) }),
  };
}

function withRuntime(
  options: CudaDriverOptions,
  use: (opened: { runtime: Runtime; driver: CudaDriver }) => void,
): void {
  const driver = openCudaDriver({ environment: attached, ...options });
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

for (const allocation of ["auto", "plain"] as const) {
  test(`${allocation} memory: the bytes of a storage are in use, its padding is not, and none are after its step`, {
    skip,
  }, () => {
    withRuntime({ allocation }, ({ runtime }) => {
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

  test(`${allocation} memory: a placed region is in use until it is released, and its pool ends with it`, {
    skip,
  }, () => {
    withRuntime({ allocation }, ({ runtime }) => {
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
}

test("a storage across the boundary of two commits is in use on both sides of it", { skip }, () => {
  withRuntime({}, ({ runtime }) => {
    const tool = openTool();
    runtime.step(() => {
      runtime.arena.allocate(3 * MiB, "first");
      const { span } = runtime.arena.allocate(3 * MiB, "second");
      const edge = span.address + MiB;
      assert.ok(!tool.hasPool(span), "no boundary is inside the storage");
      assert.ok(tool.hasInUse(span.address, MiB) && tool.hasInUse(edge, 2 * MiB));
    });
    assert.ok(!tool.hasInUse(runtime.arena.allocate(4, "third").span.address, 5));
  });
});

test("everything ends with the runtime", { skip }, () => {
  const tool = openTool();
  const before = tool.counts();
  withRuntime({}, ({ runtime }) => runtime.arena.allocate(4, "left"));
  assert.deepEqual(tool.counts(), before);
});

test("a tool that ignores calls is no obstacle", { skip }, () => {
  emulator.fail("nvtxMemHeapRegister", 1);
  withRuntime({}, ({ runtime }) => {
    const { span } = runtime.arena.allocate(100, "test");
    assert.ok(!openTool().hasPool(span));
  });
});
