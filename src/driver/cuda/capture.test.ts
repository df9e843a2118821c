/** Captures on CUDA: recorded work, calls rejected before CUDA is called, and the conditions for launching a graph. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { heldOnEmulator, openBench, withEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { bytes, span } from "../../units/index.js";
import { basicKernels } from "../basic-kernels.js";
import {
  type DriverCall,
  driverCalls,
  type Event,
  type HostMemory,
  type Kernel,
  type Stream,
} from "../driver.js";
import { cudaFunctions } from "./bindings.js";
import { openCuda } from "./calls.js";
import { graphNodeType, instantiateFlag } from "./constants.js";
import type { CudaDriver } from "./driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

function prepare(driver: CudaDriver) {
  const { memory, stream, host, read } = openBench(driver);
  const kernels = {
    fill: driver.loadKernel(basicKernels.fill),
    add: driver.loadKernel(basicKernels.add),
    scale: driver.loadKernel(basicKernels.scale),
  };
  driver.fill(stream, memory, 0);
  driver.synchronize(stream);
  /** The n-th float32 of the memory. */
  const cell = (index: number) => span(memory.address + 4 * index, 4);
  return {
    memory,
    stream,
    host,
    kernels,
    cell,
    at: (index: number) => new Float32Array(read(cell(index)).buffer)[0],
    set: (on: Stream, index: number, value: number) =>
      driver.launch(on, { kernel: kernels.fill, blocks: 1, arguments: [cell(index), value, 1] }),
    add: (on: Stream, a: number, b: number, out: number) =>
      driver.launch(on, { kernel: kernels.add, blocks: 1, arguments: [cell(a), cell(b), cell(out), 1] }),
    capture(body: () => void) {
      driver.beginCapture(stream, "thread-local");
      body();
      return driver.endCapture(stream);
    },
  };
}

/** CUDA's handle of a stream, which only its error messages show. */
function handleOf(driver: CudaDriver, stream: Stream): number {
  emulator.fail("cuStreamSynchronize", 1, { times: 1 });
  try {
    driver.synchronize(stream);
  } catch (error) {
    return Number(/stream (0x[0-9a-f]+)/.exec(String(error))![1]);
  }
  throw new Error("the emulator let a planned failure pass");
}

/** The number of calls so far of each function of the driver API. */
function callsMade(): Readonly<Record<string, number>> {
  const calls = Object.keys(cudaFunctions).map((name) => [name, emulator.calls(name)] as const);
  return Object.fromEntries(calls.filter(([, count]) => count > 0));
}

describe("a capture", { skip }, () => {
  test("records work without running it, and each launch of its graph runs it", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, add, at, capture } = prepare(driver);
      set(stream, 0, 1);
      const graph = capture(() => add(stream, 0, 0, 0));
      assert.equal(at(0), 1);
      driver.instantiate(graph);
      for (let turn = 0; turn < 3; turn++) driver.launchGraph(stream, graph);
      assert.equal(at(0), 8);
    });
  });

  test("is in thread-local mode, even if another one is requested", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream } = prepare(driver);
      for (const mode of ["thread-local", "global", "relaxed", undefined]) {
        driver.beginCapture(stream, mode as "thread-local");
        driver.endCapture(stream);
      }
      const modes = ["captures.threadLocal", "captures.global", "captures.relaxed"] as const;
      assert.deepEqual(
        modes.map((mode) => emulator.get(mode)),
        [4, 0, 0],
      );
      assert.equal(emulator.calls("cuThreadExchangeStreamCaptureMode"), 0);
    });
  });

  test("reads the current memory at each launch, and keeps its arguments", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, kernels, cell, set, at, capture } = prepare(driver);
      const context = [cell(0), cell(1), cell(2), 1];
      const graph = capture(() => {
        driver.launch(stream, { kernel: kernels.scale, blocks: 1, arguments: context });
        set(stream, 4, 7);
      });
      context.fill(0);
      driver.instantiate(graph);
      for (const factor of [2, 5]) {
        set(stream, 0, 3);
        set(stream, 2, factor);
        // The kernel's argument block is overwritten between the launches.
        set(stream, 5, factor);
        driver.launchGraph(stream, graph);
        assert.deepEqual([at(1), at(4), at(5)], [3 * factor, 7, factor]);
      }
    });
  });

  test("includes a stream that waits for an event from inside, until the end", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, add, at, capture } = prepare(driver);
      const side = driver.createStream();
      const [fork, join] = [driver.createEvent(), driver.createEvent()];
      const graph = capture(() => {
        set(stream, 0, 2);
        driver.recordEvent(fork, stream);
        driver.waitEvent(side, fork);
        add(side, 0, 0, 1);
        driver.recordEvent(join, side);
        driver.waitEvent(stream, join);
        add(stream, 0, 1, 2);
      });
      assert.deepEqual([at(0), at(1), at(2)], [0, 0, 0]);
      assert.equal(graph.nodes.kernel, 3);
      driver.instantiate(graph);
      driver.launchGraph(side, graph);
      driver.synchronize(side);
      assert.deepEqual([at(0), at(1), at(2)], [2, 4, 6]);
      set(side, 3, 5);
      driver.synchronize(side);
      assert.equal(at(3), 5);
    });
  });

  test("that never waited for its side stream is rejected with advice, and both streams are usable again", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, at } = prepare(driver);
      const [side, fork] = [driver.createStream(), driver.createEvent()];
      driver.beginCapture(stream, "thread-local");
      driver.recordEvent(fork, stream);
      driver.waitEvent(side, fork);
      set(side, 0, 1);
      const before = heldOnEmulator();
      assert.throws(() => driver.endCapture(stream), {
        code: "CAPTURE_ORDER",
        message: /was not joined to it.*record an event on that stream/,
      });
      assert.equal(heldOnEmulator().graphs, before.graphs - 1);
      for (const one of [side, stream]) {
        set(one, 0, 3);
        driver.synchronize(one);
      }
      assert.equal(at(0), 3);
    });
  });

  test("begins and ends in order, and a call out of order leaves the open one valid", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set } = prepare(driver);
      const other = driver.createStream();
      const rejected = (message: RegExp) => ({ code: "CAPTURE_ORDER", message });
      assert.throws(() => driver.endCapture(stream), rejected(/no capture is open/));
      driver.beginCapture(stream, "thread-local");
      assert.throws(
        () => driver.beginCapture(stream, "thread-local"),
        rejected(/failed: the capture on stream #1/),
      );
      assert.throws(
        () => driver.beginCapture(other, "thread-local"),
        rejected(/stream #2 failed: the capture on stream #1 is still open/),
      );
      assert.throws(() => driver.endCapture(other), rejected(/began on stream #1/));
      assert.deepEqual(
        [emulator.calls("cuStreamBeginCapture"), emulator.calls("cuStreamEndCapture")],
        [1, 0],
      );
      set(stream, 0, 1);
      assert.equal(driver.endCapture(stream).nodes.kernel, 1);
      assert.throws(() => driver.endCapture(stream), rejected(/no capture is open/));
      assert.equal(emulator.calls("cuStreamEndCapture"), 1);
    });
  });

  test("with an exception inside can be ended normally, and another one started", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, capture } = prepare(driver);
      assert.throws(
        () =>
          capture(() => {
            set(stream, 0, 1);
            throw new Error("of the captured function");
          }),
        /captured function/,
      );
      driver.destroyGraph(driver.endCapture(stream));
      assert.equal(capture(() => set(stream, 0, 1)).nodes.kernel, 1);
    });
  });

  test("that CUDA invalidates names the first failed call, and leaves the streams usable", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, cell, at } = prepare(driver);
      driver.beginCapture(stream, "thread-local");
      emulator.fail("cuMemsetD8Async", 900, { times: 1 });
      assert.throws(() => driver.fill(stream, cell(0), 1), { code: "CAPTURE_REJECTED" });
      emulator.fail("cuStreamEndCapture", 901, { times: 1 });
      assert.throws(() => driver.endCapture(stream), {
        code: "CAPTURE_REJECTED",
        message: /^cuStreamEndCapture\(.*\(901\).*cuMemsetD8Async\(.*failed first: .*\(900\)/,
      });
      emulator.reset();
      set(stream, 0, 4);
      assert.equal(at(0), 4);
    });
  });
});

interface InCapture {
  readonly driver: CudaDriver;
  readonly stream: Stream;
  readonly other: Stream;
  readonly inside: Event;
  readonly outside: Event;
  readonly host: HostMemory;
  readonly kernel: Kernel;
  readonly memory: ReturnType<CudaDriver["reserve"]>;
}

const illegal: Record<string, (context: InCapture) => void> = {
  reserve: ({ driver }) => driver.reserve(bytes(1)),
  commit: ({ driver, memory }) => driver.commit(memory),
  release: ({ driver, memory }) => driver.release(memory),
  allocateHost: ({ driver }) => driver.allocateHost(bytes(1)),
  freeHost: ({ driver, host }) => driver.freeHost(host),
  compileKernels: ({ driver }) => driver.compileKernels?.([basicKernels.copy]),
  loadKernel: ({ driver }) => driver.loadKernel(basicKernels.copy),
  unloadKernel: ({ driver, kernel }) => driver.unloadKernel(kernel),
  "synchronize(stream #1)": ({ driver, stream }) => driver.synchronize(stream),
  "synchronize(stream #2)": ({ driver, other }) => driver.synchronize(other),
  "destroyStream(stream #1)": ({ driver, stream }) => driver.destroyStream(stream),
  "destroyStream(stream #2)": ({ driver, other }) => driver.destroyStream(other),
  "synchronizeEvent(event #1)": ({ driver, inside }) => driver.synchronizeEvent(inside),
  "synchronizeEvent(event #2)": ({ driver, outside }) => driver.synchronizeEvent(outside),
  "isReached(event #1)": ({ driver, inside }) => driver.isReached(inside),
  "isReached(event #2)": ({ driver, outside }) => driver.isReached(outside),
  "waitEvent(stream #1, event #2)": ({ driver, stream, outside }) => driver.waitEvent(stream, outside),
};

/** Calls that record work, create or destroy a handle, or only read. A graph may be launched on another stream. */
const legal: readonly DriverCall[] = [
  ...(["describe", "memory", "annotate", "recall", "remember", "hostBytes", "close"] as const),
  ...(["createStream", "createEvent", "destroyEvent", "recordEvent", "waitEvent"] as const),
  ...(["copyToDevice", "copyToHost", "copyOnDevice", "fill", "launch"] as const),
  ...(["beginCapture", "endCapture", "instantiate", "launchGraph", "destroyGraph"] as const),
];

describe("illegal in a capture", { skip }, () => {
  test("is every call that is neither listed as legal nor tested separately", () => {
    const listed = Object.keys(illegal).map((call) => call.replace(/\(.*/, ""));
    assert.deepEqual([...new Set([...listed, ...legal])].sort(), [...driverCalls].sort());
  });

  for (const [call, act] of Object.entries(illegal)) {
    test(`${call} is rejected by name, CUDA is not called, and the capture is invalid`, () => {
      withEmulatorDriver({}, (driver) => {
        const { stream, host, kernels, memory, set, at } = prepare(driver);
        const other = driver.createStream();
        const [inside, outside] = [driver.createEvent(), driver.createEvent()];
        driver.recordEvent(outside, other);
        driver.beginCapture(stream, "thread-local");
        set(stream, 0, 1);
        driver.recordEvent(inside, stream);
        const named = new RegExp(call.replace(/[()]/g, "\\$&"));
        const rejected = { code: "CAPTURE_REJECTED", message: named };
        const before = callsMade();
        const context = { driver, stream, other, inside, outside, host, kernel: kernels.add, memory };
        assert.throws(() => act(context), {
          code: "CAPTURE_REJECTED",
          message: new RegExp(`${named.source}.*CUDA was not called`),
        });
        // A second illegal call does not replace the first.
        assert.throws(() => driver.allocateHost(bytes(7)), { code: "CAPTURE_REJECTED" });
        assert.throws(() => set(stream, 0, 2), rejected);
        assert.throws(() => driver.recordEvent(inside, stream), rejected);
        assert.deepEqual(callsMade(), before);
        assert.throws(() => driver.endCapture(stream), rejected);
        assert.throws(() => driver.endCapture(stream), { code: "CAPTURE_ORDER" });
        // Everything is as before the capture.
        assert.equal(at(0), 0);
        set(stream, 0, 3);
        assert.equal(at(0), 3);
        driver.synchronize(other);
        assert.equal(driver.isReached(outside), true);
      });
    });
  }

  test("red proof: CUDA invalidates the capture if it is asked to wait for another stream", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set } = prepare(driver);
      const other = handleOf(driver, driver.createStream());
      const { status } = openCuda({ environment: { HOLDFAST_CUDA_PATH: emulator.folder } }).driver;
      driver.beginCapture(stream, "thread-local");
      assert.equal(status.cuStreamSynchronize(other), 900);
      assert.throws(() => set(stream, 0, 1), /CUDA_ERROR_STREAM_CAPTURE_INVALIDATED \(901\)/);
      assert.throws(() => driver.endCapture(stream), /CUDA_ERROR_STREAM_CAPTURE_INVALIDATED \(901\)/);
    });
  });

  test("work of other streams runs during a capture", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, at, cell } = prepare(driver);
      const other = driver.createStream();
      driver.beginCapture(stream, "thread-local");
      set(other, 0, 4);
      driver.fill(other, cell(1), 0xff);
      set(stream, 2, 1);
      const graph = driver.endCapture(stream);
      driver.synchronize(other);
      assert.deepEqual([at(0), at(2)], [4, 0]);
      assert.deepEqual(graph.nodes, { kernel: 1, copy: 0, fill: 0, memory: 0, host: 0 });
    });
  });

  test("an event recorded inside an ended capture is unusable until it is recorded again", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, capture } = prepare(driver);
      const event = driver.createEvent();
      capture(() => driver.recordEvent(event, stream));
      const rejected = { code: "CAPTURE_REJECTED", message: /Event #1 .*Record it again/ };
      const before = callsMade();
      assert.throws(() => driver.waitEvent(stream, event), rejected);
      assert.throws(() => driver.isReached(event), rejected);
      assert.throws(() => driver.synchronizeEvent(event), rejected);
      assert.deepEqual(callsMade(), before);
      driver.recordEvent(event, stream);
      driver.synchronizeEvent(event);
      assert.equal(driver.isReached(event), true);
    });
  });
});

describe("a graph", { skip }, () => {
  test("counts its nodes by kind", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, host, cell, set, kernels, capture } = prepare(driver);
      const range = { memory: host, offset: bytes(0), size: bytes(4) };
      const graph = capture(() => {
        set(stream, 0, 1);
        set(stream, 1, 1);
        driver.copyToDevice(stream, cell(2), range);
        driver.copyToHost(stream, range, cell(2));
        driver.copyOnDevice(stream, cell(3), cell(2));
        driver.fill(stream, cell(4), 0);
        driver.launch(stream, { kernel: kernels.fill, blocks: 0, arguments: [cell(0), 1, 1] });
      });
      assert.deepEqual(graph.nodes, { kernel: 2, copy: 3, fill: 1, memory: 0, host: 0 });
      assert.deepEqual(capture(() => undefined).nodes, { kernel: 0, copy: 0, fill: 0, memory: 0, host: 0 });
    });
  });

  const plantings: readonly [keyof typeof graphNodeType, object][] = [
    ["HOST", { host: 1 }],
    ["MEM_ALLOC", { memory: 1 }],
    ["MEM_FREE", { memory: 1 }],
    ["EMPTY", {}],
    // An unknown node type counts as a host node, which is rejected.
    ["EVENT_RECORD", { host: 1 }],
  ];
  for (const [type, expected] of plantings) {
    test(`with a foreign node of type ${type} counts ${JSON.stringify(expected)}`, () => {
      withEmulatorDriver({}, (driver) => {
        const { stream, set, capture } = prepare(driver);
        const handle = handleOf(driver, stream);
        const graph = capture(() => {
          set(stream, 0, 1);
          emulator.inject(handle, graphNodeType[type]);
        });
        assert.deepEqual(graph.nodes, { kernel: 1, copy: 0, fill: 0, memory: 0, host: 0, ...expected });
      });
    });
  }

  test("can be launched only between instantiate() and destroyGraph()", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, at, capture } = prepare(driver);
      const graph = capture(() => set(stream, 0, 1));
      const early = { code: "CAPTURE_ORDER", message: /Graph #1 was launched before it was instantiated/ };
      assert.throws(() => driver.launchGraph(stream, graph), early);
      driver.instantiate(graph);
      driver.instantiate(graph);
      assert.deepEqual(
        [emulator.calls("cuGraphInstantiateWithFlags"), emulator.calls("cuGraphUpload")],
        [1, 1],
      );
      // So that kernels keep the priorities of their streams.
      assert.equal(emulator.get("flags of the latest executable"), instantiateFlag.USE_NODE_PRIORITY);
      driver.launchGraph(stream, graph);
      assert.equal(at(0), 1);
      driver.destroyGraph(graph);
      assert.deepEqual([emulator.get("graphs"), emulator.get("executables")], [0, 0]);
      for (const use of [
        () => driver.launchGraph(stream, graph),
        () => driver.instantiate(graph),
        () => driver.destroyGraph(graph),
      ])
        assert.throws(use, { code: "CLOSED", message: /Graph #1/ });
    });
  });

  test("is rejected on the captured stream, by name", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, set, capture } = prepare(driver);
      const graph = capture(() => set(stream, 0, 1));
      driver.instantiate(graph);
      const rejected = (message: RegExp) => ({ code: "CAPTURE_REJECTED", message });
      assert.throws(
        () => capture(() => driver.launchGraph(stream, graph)),
        rejected(/launchGraph\(stream #1\)/),
      );
      assert.throws(() => driver.endCapture(stream), rejected(/launchGraph/));
      assert.throws(() => capture(() => driver.instantiate(graph)), rejected(/instantiate/));
      assert.throws(() => driver.endCapture(stream), rejected(/instantiate/));
      assert.equal(emulator.calls("cuGraphLaunch"), 0);
    });
  });

  test("whose memory, kernel or host memory was released is rejected before CUDA is called", () => {
    type Prepared = ReturnType<typeof prepare>;
    const releases: readonly [string, RegExp, (driver: CudaDriver, context: Prepared) => void][] = [
      ["DEAD_ADDRESS", /touches .* which was released/, (driver, { memory }) => driver.release(memory)],
      [
        "CLOSED",
        /kernel "fill", which was unloaded/,
        (driver, { kernels }) => driver.unloadKernel(kernels.fill),
      ],
      ["CLOSED", /host memory #1, which was freed/, (driver, { host }) => driver.freeHost(host)],
    ];
    for (const [code, message, act] of releases) {
      withEmulatorDriver({}, (driver) => {
        const context = prepare(driver);
        const { stream, host, set, cell, capture } = context;
        const graph = capture(() => {
          set(stream, 0, 1);
          driver.copyToDevice(stream, cell(1), { memory: host, offset: bytes(0), size: bytes(4) });
        });
        driver.instantiate(graph);
        const launches = emulator.calls("cuGraphLaunch");
        driver.launchGraph(stream, graph);
        // The release of unrelated memory does not affect it.
        driver.release(driver.reserve(bytes(1)));
        driver.launchGraph(stream, graph);
        act(driver, context);
        assert.throws(() => driver.launchGraph(stream, graph), { code, message });
        assert.throws(() => driver.launchGraph(stream, graph), { code, message });
        assert.deepEqual([emulator.calls("cuGraphLaunch") - launches, emulator.lastFault()], [2, ""]);
      });
    }
  });

  test("is rejected even if its memory was reserved and released again", () => {
    withEmulatorDriver({}, (driver) => {
      const { stream, kernels, capture } = prepare(driver);
      const range = driver.reserve(bytes(1));
      driver.commit(range);
      const graph = capture(() =>
        driver.launch(stream, { kernel: kernels.fill, blocks: 1, arguments: [range, 1, 1] }),
      );
      driver.instantiate(graph);
      driver.release(range);
      // Reserved again without memory: addresses alone are not enough.
      const again = driver.reserve(bytes(1));
      assert.throws(() => driver.launchGraph(stream, graph), { code: "DEAD_ADDRESS" });
      driver.release(again);
    });
  });
});
