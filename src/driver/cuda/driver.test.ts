/** The CUDA driver as a whole: bytes, order, arguments, handles, failures, closing. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import {
  heldOnEmulator,
  openBench,
  openEmulatorDriver,
  withEmulatorDriver,
} from "../../../test/support/emulator-driver.js";
import { bytes, GiB, MiB, type Span, span } from "../../units/index.js";
import { basicKernels } from "../basic-kernels.js";
import type { Argument, Driver, DriverCall, HostSpan, KernelSource } from "../driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

test("the driver describes itself as the device does", { skip }, () => {
  emulator.set("multiprocessors", 132);
  withEmulatorDriver({}, (driver) =>
    assert.deepEqual(driver.describe(), {
      kind: "cuda",
      name: "Emulator GPU",
      index: 0,
      memory: "discrete",
      addressSpace: 16 * 1024 * GiB,
      granularity: 2 * MiB,
      canCommitInParts: true,
      parallelism: 132,
      computeCapability: "9.0",
      sharedBytesPerBlock: 227 * 1024,
      supportsPdl: true,
      uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00",
    }),
  );
});

test("the device supports PDL with a Hopper GPU and a new driver", { skip }, () => {
  const knows = (major: number, driverVersion: number): boolean | undefined => {
    emulator.set("computeMajor", major);
    emulator.set("driverVersion", driverVersion);
    return withEmulatorDriver({}, (driver) => driver.describe().supportsPdl);
  };
  assert.deepEqual([knows(9, 12030), knows(9, 12020), knows(8, 13000)], [true, false, false]);
});

test("the description shows unified memory, and an address space limited to the memory", {
  skip,
}, () => {
  emulator.set("integrated", 1);
  emulator.set("virtualMemory", 0);
  emulator.set("totalMemory", 8 * GiB);
  emulator.set("computeMajor", 12);
  emulator.set("computeMinor", 1);
  withEmulatorDriver({}, (driver) => {
    const { memory, addressSpace, computeCapability } = driver.describe();
    assert.deepEqual([memory, addressSpace, computeCapability], ["unified", 8 * GiB, "12.1"]);
  });
});

describe("bytes", { skip }, () => {
  test("are copied to the device and back, by spans at any offset", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, host } = openBench(driver);
      const there: HostSpan = { memory: host, offset: bytes(3), size: bytes(5) };
      const back: HostSpan = { memory: host, offset: bytes(100), size: bytes(7) };
      driver.fill(stream, memory, 0);
      driver.hostBytes(there).set([1, 2, 3, 4, 5]);
      driver.copyToDevice(stream, span(memory.address + 7, 5), there);
      driver.copyOnDevice(stream, span(memory.address + 1001, 5), span(memory.address + 7, 5));
      driver.fill(stream, span(memory.address + 1002, 2), 0xff);
      driver.copyToHost(stream, back, span(memory.address + 1000, 7));
      driver.synchronize(stream);
      assert.deepEqual([...driver.hostBytes(back)], [0, 1, 255, 255, 4, 5, 0]);
    });
  });

  test("of empty spans are copied and filled without a call to CUDA", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, host } = openBench(driver);
      const nothing = span(memory.address, 0);
      const range: HostSpan = { memory: host, offset: bytes(0), size: bytes(0) };
      driver.copyToDevice(stream, nothing, range);
      driver.copyToHost(stream, range, nothing);
      driver.copyOnDevice(stream, nothing, nothing);
      driver.fill(stream, nothing, 1);
      for (const call of ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async"])
        assert.equal(emulator.calls(call), 0, call);
    });
  });

  test("outside memory, of different sizes or with invalid values are rejected, and CUDA is not called", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, host } = openBench(driver);
      const hostSpan = (offset: number, size: number) => ({ memory: host, offset, size }) as HostSpan;
      const eight = span(memory.address, 8);
      for (const dead of [
        span(0, 8),
        span(memory.address - 4, 8),
        span(memory.address + memory.size - 4, 8),
      ]) {
        const rejected = { code: "DEAD_ADDRESS", message: /is not committed/ };
        assert.throws(() => driver.fill(stream, dead, 0), rejected);
        assert.throws(() => driver.copyToDevice(stream, dead, hostSpan(0, 8)), rejected);
        assert.throws(() => driver.copyToHost(stream, hostSpan(0, 8), dead), rejected);
        assert.throws(() => driver.copyOnDevice(stream, eight, dead), rejected);
        assert.throws(() => driver.copyOnDevice(stream, dead, eight), rejected);
      }
      const rejected = (message: RegExp) => ({ code: "BAD_ARGUMENT", message });
      assert.throws(() => driver.copyToDevice(stream, eight, hostSpan(0, 4)), rejected(/4 and 8 bytes/));
      assert.throws(() => driver.copyToHost(stream, hostSpan(0, 4), eight), rejected(/8 and 4 bytes/));
      assert.throws(() => driver.copyOnDevice(stream, eight, span(memory.address, 4)), rejected(/4 and 8/));
      assert.throws(
        () => driver.copyToDevice(stream, eight, hostSpan(host.size - 4, 8)),
        rejected(/is outside host memory/),
      );
      assert.throws(() => driver.hostBytes(hostSpan(-1, 4)), rejected(/offset -1/));
      for (const byte of [-1, 256, 1.5, Number.NaN])
        assert.throws(() => driver.fill(stream, eight, byte), rejected(/0 to 255/));
      assert.throws(() => driver.allocateHost(bytes(0)), { code: "BAD_SIZE" });
      for (const call of ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async"])
        assert.equal(emulator.calls(call), 0, call);
    });
  });
});

describe("order", { skip }, () => {
  test("work runs in its stream's order, and a wait delays one stream for another", () => {
    emulator.set("deferred", 1);
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read } = openBench(driver);
      const other = driver.createStream();
      const event = driver.createEvent();
      driver.fill(stream, memory, 1);
      driver.recordEvent(event, stream);
      driver.waitEvent(other, event);
      driver.copyOnDevice(other, span(memory.address + 4096, 64), span(memory.address, 64));
      driver.fill(stream, memory, 2);
      // Only the other stream is synchronized: the work that it waits for runs, and no more.
      assert.deepEqual([...read(span(memory.address + 4096, 2), other)], [1, 1]);
      assert.deepEqual([...read(span(memory.address + 4096, 2))], [2, 2]);
    });
  });

  test("a high-priority stream has a higher priority than the others", () => {
    withEmulatorDriver({}, (driver) => {
      const [first, other] = [{ isHighPriority: true }, {}].map((options) => {
        driver.createStream(options);
        return emulator.get("priority of the latest stream");
      });
      // Lower numbers have priority.
      assert.ok(first! < other!);
    });
  });

  test("isReached does not wait, and synchronizeEvent does", () => {
    emulator.set("deferred", 1);
    withEmulatorDriver({}, (driver) => {
      const { memory, stream } = openBench(driver);
      const [first, second] = [driver.createEvent(), driver.createEvent()];
      assert.equal(driver.isReached(first), true, "one that was never recorded");
      driver.fill(stream, memory, 1);
      driver.recordEvent(first, stream);
      assert.equal(driver.isReached(first), false);
      driver.recordEvent(second, stream);
      driver.synchronizeEvent(second);
      assert.deepEqual([driver.isReached(first), driver.isReached(second)], [true, true]);
    });
  });

  test("queued work runs before its kernel, memory, host memory or stream is released", () => {
    emulator.set("deferred", 1);
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, host, read } = openBench(driver);
      const target = span(memory.address, 16);
      const kernel = driver.loadKernel(basicKernels.fill);
      driver.launch(stream, { kernel, blocks: 1, arguments: [target, 1.5, 4] });
      driver.unloadKernel(kernel);
      assert.deepEqual([...new Float32Array(read(target).buffer)], [1.5, 1.5, 1.5, 1.5]);

      const staging = driver.allocateHost(bytes(16));
      const source = { memory: staging, offset: bytes(0), size: bytes(16) };
      driver.hostBytes(source).fill(7);
      driver.copyToDevice(stream, target, source);
      driver.freeHost(staging);
      assert.equal(read(target)[15], 7);

      const side = driver.createStream();
      driver.fill(side, target, 9);
      driver.destroyStream(side);
      assert.equal(read(target)[0], 9);

      const other = driver.reserve(bytes(16));
      driver.commit(other);
      driver.fill(stream, other, 3);
      driver.copyToHost(stream, { memory: host, offset: bytes(64), size: bytes(4) }, span(other.address, 4));
      driver.release(other);
      assert.equal(driver.hostBytes({ memory: host, offset: bytes(64), size: bytes(1) })[0], 3);
    });
  });

  test("arguments are copied during the call, although the work runs later", () => {
    emulator.set("deferred", 1);
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read } = openBench(driver);
      const kernel = driver.loadKernel(basicKernels.fill);
      const target = { address: memory.address, size: bytes(4) } as { -readonly [K in keyof Span]: Span[K] };
      const args: Argument[] = [span(memory.address + 4, 4), 1.5, 1];
      driver.fill(stream, memory, 0);
      driver.fill(stream, target, 7);
      driver.launch(stream, { kernel, blocks: 1, arguments: args });
      target.address = span(memory.address + 100, 4).address;
      args[0] = target;
      args[1] = 9;
      // The kernel's next launch overwrites the argument block.
      driver.launch(stream, { kernel, blocks: 1, arguments: [span(memory.address + 8, 4), 2.5, 1] });
      const actual = read(span(memory.address, 104));
      assert.deepEqual([...actual.slice(0, 4)], [7, 7, 7, 7]);
      const floats = new Float32Array(actual.buffer);
      assert.deepEqual([floats[1], floats[2], floats[25]], [1.5, 2.5, 0]);
    });
  });
});

test("closed handles and handles of another driver are rejected by their number", { skip }, () => {
  withEmulatorDriver({}, (driver) => {
    const { memory, stream, host } = openBench(driver);
    const event = driver.createEvent();
    const kernel = driver.loadKernel(basicKernels.fill);
    driver.destroyEvent(event);
    assert.throws(() => driver.recordEvent(event, stream), { code: "CLOSED", message: /Event #1/ });
    driver.unloadKernel(kernel);
    const launch = { kernel, blocks: 1, arguments: [memory, 1, 1] };
    assert.throws(() => driver.launch(stream, launch), { code: "CLOSED", message: /Kernel #1/ });
    assert.throws(() => driver.unloadKernel(kernel), { code: "CLOSED", message: /Kernel #1/ });
    driver.freeHost(host);
    assert.throws(() => driver.freeHost(host), { code: "CLOSED", message: /Host memory #1/ });
    driver.destroyStream(stream);
    assert.throws(() => driver.synchronize(stream), { code: "CLOSED", message: /Stream #1/ });
    driver.createStream();
    withEmulatorDriver({}, (other) => {
      assert.throws(() => driver.synchronize(other.createStream()), {
        code: "CLOSED",
        message: /another driver/,
      });
    });
  });
});

/** One use of every call, with handles created before the close. */
function usesOf(driver: Driver): Record<Exclude<DriverCall, "annotate" | "close">, () => unknown> {
  const { memory, stream, host } = openBench(driver as never);
  const event = driver.createEvent();
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.beginCapture(stream, "thread-local");
  const graph = driver.endCapture(stream);
  driver.instantiate(graph);
  const hostSpan: HostSpan = { memory: host, offset: bytes(0), size: bytes(4) };
  const device = span(memory.address, 4);
  return {
    describe: () => driver.describe(),
    memory: () => driver.memory(),
    reserve: () => driver.reserve(bytes(1)),
    commit: () => driver.commit(memory),
    release: () => driver.release(memory),
    allocateHost: () => driver.allocateHost(bytes(1)),
    hostBytes: () => driver.hostBytes(hostSpan),
    freeHost: () => driver.freeHost(host),
    createStream: () => driver.createStream(),
    destroyStream: () => driver.destroyStream(stream),
    createEvent: () => driver.createEvent(),
    destroyEvent: () => driver.destroyEvent(event),
    recordEvent: () => driver.recordEvent(event, stream),
    waitEvent: () => driver.waitEvent(stream, event),
    isReached: () => driver.isReached(event),
    synchronizeEvent: () => driver.synchronizeEvent(event),
    synchronize: () => driver.synchronize(stream),
    copyToDevice: () => driver.copyToDevice(stream, device, hostSpan),
    copyToHost: () => driver.copyToHost(stream, hostSpan, device),
    copyOnDevice: () => driver.copyOnDevice(stream, device, device),
    fill: () => driver.fill(stream, device, 0),
    compileKernels: () => driver.compileKernels?.([basicKernels.fill]),
    loadKernel: () => driver.loadKernel(basicKernels.fill),
    unloadKernel: () => driver.unloadKernel(kernel),
    launch: () => driver.launch(stream, { kernel, blocks: 1, arguments: [device, 1, 1] }),
    recall: () => driver.recall?.("a"),
    remember: () => driver.remember?.("a", "b"),
    beginCapture: () => driver.beginCapture(stream, "thread-local"),
    endCapture: () => driver.endCapture(stream),
    instantiate: () => driver.instantiate(graph),
    launchGraph: () => driver.launchGraph(stream, graph),
    destroyGraph: () => driver.destroyGraph(graph),
  };
}

test("after close() every call is rejected, and close() is idempotent", { skip }, () => {
  const before = heldOnEmulator();
  const driver = openEmulatorDriver();
  const uses = usesOf(driver);
  driver.close();
  assert.deepEqual(heldOnEmulator(), before);
  for (const [name, use] of Object.entries(uses)) assert.throws(use, { code: "CLOSED" }, name);
  driver.close();
});

describe("a failed call of CUDA", { skip }, () => {
  test("is reported with CUDA's name and number, the call and its arguments", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream } = openBench(driver);
      emulator.fail("cuMemsetD8Async", 1, { times: 1 });
      const target = span(memory.address + 16, 32);
      assert.throws(() => driver.fill(stream, target, 5), {
        code: "DRIVER_FAILED",
        message: new RegExp(
          `^cuMemsetD8Async\\(target 0x${target.address.toString(16)}, value 5, size 32, stream 0x[0-9a-f]+\\) failed: ` +
            "CUDA_ERROR_INVALID_VALUE \\(1\\), invalid argument\\.",
        ),
        numbers: { call: "cuMemsetD8Async", status: 1, name: "CUDA_ERROR_INVALID_VALUE" },
      });
      driver.fill(stream, target, 5);
    });
  });

  /** Writes far past its memory, where nothing is mapped. */
  const stray: KernelSource = {
    name: "stray",
    parameters: ["inout"],
    cuda: {
      entry: "hf_stray",
      threads: 32,
      code: `extern "C" __global__ void __launch_bounds__(32) hf_stray(float* out) {
  if (threadIdx.x == 0u) out[1ull << 36] = 1.0f;
}
`,
    },
  };

  test("of a kernel is thrown by a later call, and further calls name that call", () => {
    const driver = openEmulatorDriver();
    const { memory, stream } = openBench(driver);
    const kernel = driver.loadKernel(stray);
    const event = driver.createEvent();
    driver.launch(stream, { kernel, blocks: 1, arguments: [memory] });
    assert.throws(() => driver.synchronize(stream), {
      code: "DRIVER_FAILED",
      message:
        /^cuStreamSynchronize\(.*CUDA_ERROR_ILLEGAL_ADDRESS \(700\).*the context is lost\. Restart this process/,
    });
    assert.match(emulator.lastFault(), /hf_stray: an access at/);
    const later = {
      message: /cuStreamSynchronize\(stream 0x[0-9a-f]+\) failed first: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)/,
    };
    assert.throws(() => driver.fill(stream, memory, 0), later);
    assert.throws(() => driver.reserve(bytes(1)), later);
    assert.throws(() => driver.isReached(event), later);
    assert.throws(() => driver.loadKernel(basicKernels.fill), later);
    // The context is lost, so nothing can be released: close() throws, and the driver is closed.
    assert.throws(() => driver.close(), later);
    assert.throws(() => driver.describe(), { code: "CLOSED" });
    driver.close();
  });

  test("while closing is thrown, after the rest has been released", () => {
    const leftBy: Record<string, readonly string[]> = {
      cuStreamSynchronize: [],
      cuGraphExecDestroy: ["graphs", "executables"],
      cuGraphDestroy: ["graphs"],
      cuModuleUnload: ["modules"],
      cuEventDestroy_v2: ["events"],
      cuStreamDestroy_v2: ["streams"],
      cuMemFreeHost: ["hostAllocations"],
      cuMemUnmap: ["usedMemory", "reservations"],
      cuMemAddressFree: ["reservations"],
    };
    for (const [call, expected] of Object.entries(leftBy)) {
      const before = heldOnEmulator();
      const driver = openEmulatorDriver();
      usesOf(driver);
      emulator.fail(call, 999, { times: 1 });
      const numbers = { call, status: 999, name: "CUDA_ERROR_UNKNOWN" };
      assert.throws(() => driver.close(), { code: "DRIVER_FAILED", numbers }, call);
      const after = Object.entries(heldOnEmulator());
      const left = after.filter(([figure, count]) => count !== before[figure as keyof typeof before]);
      assert.deepEqual(
        left.map(([figure]) => figure),
        expected,
        call,
      );
      emulator.reset();
    }
  });

  test("running work completes before close() releases its kernels and memory", () => {
    emulator.set("deferred", 1);
    const driver = openEmulatorDriver();
    const { memory, stream } = openBench(driver);
    const kernel = driver.loadKernel(basicKernels.fill);
    driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 1, 4] });
    driver.close();
    assert.deepEqual([emulator.calls("cuStreamSynchronize"), emulator.lastFault()], [1, ""]);
  });
});

test("a driver that is closed during a capture releases everything", { skip }, () => {
  for (const isSpoilt of [false, true]) {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream } = openBench(driver);
      driver.beginCapture(stream, "thread-local");
      driver.fill(stream, memory, 1);
      if (isSpoilt) assert.throws(() => driver.synchronize(stream), { code: "CAPTURE_REJECTED" });
    });
  }
});
