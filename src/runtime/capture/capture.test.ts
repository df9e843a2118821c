/** Captures through the runtime: their effect and their rejections. A rejected capture has no effect. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { openTestDriver, type TestDriver } from "../../../test/support/test-device.js";
import {
  basicKernels,
  blockCount,
  type Driver,
  type Graph,
  interceptCalls,
  type Stream,
  strict,
} from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Storage } from "../memory/storage.js";
import { openRuntime, type Runtime, type RuntimeOptions } from "../runtime.js";

const count = 1000;

let device: TestDriver;
let runtime: Runtime;
let printed: string[];
let state: Storage;
let factor: Storage;

function open(options: RuntimeOptions = { capture: "on" }, wrap: (driver: Driver) => Driver = strict): void {
  printed = [];
  const print = (text: string): void => void printed.push(text);
  runtime = openRuntime({ driver: wrap(device), stallAfter: "off", environment: {}, print, ...options });
  const region = runtime.persistent.place("weights", "model", [
    { name: "state", size: 4 * count },
    { name: "factor", size: 4 },
  ]);
  state = region.storages[0]!;
  factor = region.storages[1]!;
  runtime.upload([
    { source: new Float32Array(count).fill(3), target: state },
    { source: new Float32Array([2]), target: factor },
  ]);
}

beforeEach(() => {
  device = openTestDriver();
});
afterEach(() => {
  runtime.close();
  device.close();
});

/** state ← state · factor */
function grow(): void {
  const kernel = runtime.kernel(basicKernels.scale);
  const values = [state, state, factor, count];
  runtime.launch({ op: "grow", kernel, blocks: blockCount(count), arguments: values });
}

const first = (): number => new Float32Array(runtime.read(state).buffer)[0]!;

describe("a capture for timing", () => {
  test("replays like a capture, and neither runs before nor compares its results", () => {
    let reads = 0;
    open({ capture: "on" }, (driver) =>
      interceptCalls(strict(driver), (call, _, proceed) => {
        if (call === "copyToHost") reads++;
        return proceed();
      }),
    );
    const before = runtime.budget.used;
    const capturedForTiming = runtime.captureForTiming("growth", grow);
    assert.equal(reads, 0);
    assert.equal(capturedForTiming.nodes?.kernel, 1);
    assert.equal(first(), 3);
    capturedForTiming.replay();
    assert.equal(first(), 6);
    capturedForTiming.close();
    assert.equal(runtime.budget.used, before);
    rejects("CLOSED", () => capturedForTiming.replay());
  });

  test("has the rules of a captured function, and is rejected inside a capture", () => {
    open();
    rejects("CAPTURE_REJECTED", () => runtime.captureForTiming("look", () => void runtime.read(state)));
    rejects("CAPTURE_ORDER", () =>
      runtime.capture("outer", () => void runtime.captureForTiming("inner", grow)),
    );
    assert.equal(first(), 3);
  });

  test("runs directly if capture is off", () => {
    open({ capture: "off" });
    const capturedForTiming = runtime.captureForTiming("growth", grow);
    assert.deepEqual([capturedForTiming.mode, first()], ["direct", 3]);
    capturedForTiming.replay();
    assert.equal(first(), 6);
  });
});

test("a capture restores the memory it writes, and each replay does the work once", () => {
  open();
  const graph = runtime.capture("grow", grow);
  assert.equal(graph.mode, "graph");
  assert.equal(first(), 3);
  graph.replay();
  assert.equal(first(), 6);
  graph.replay();
  assert.equal(first(), 12);
});

test("a replay reads the current values in memory", () => {
  open();
  const graph = runtime.capture("grow", grow);
  graph.replay();
  runtime.upload([{ source: new Float32Array([10]), target: factor }]);
  graph.replay();
  assert.equal(first(), 60);
});

test("the graph keeps step memory alive until it is closed, and is charged to the budget", () => {
  open();
  const graph = runtime.step(() => {
    const scratch = runtime.arena.allocate(4 * count, "scratch");
    return runtime.capture("via scratch", () => {
      runtime.copy(scratch, state);
      runtime.copy(state, scratch);
    });
  });
  assert.equal(runtime.arena.figures.pins, 1);
  assert.equal(runtime.budget.usedBy("graph"), 2048);
  graph.replay();
  graph.close();
  graph.close();
  assert.deepEqual([runtime.arena.figures.pins, runtime.arena.figures.live], [0, 0]);
  assert.equal(runtime.budget.usedBy("graph"), 0);
  rejects("CLOSED", () => graph.replay());
});

describe("an illegal action in a captured function", () => {
  const illegal: Record<string, () => unknown> = {
    "Allocation of 48 KiB by matmul": () => runtime.arena.allocate(48 * 1024, "matmul"),
    "Read-back of 4 B by factor": () => runtime.read(factor),
    "Upload of 1 tensor by factor": () => runtime.upload([{ source: new Float32Array(1), target: factor }]),
    "Synchronization by synchronize\\(\\)": () => runtime.synchronize(),
    "Opening of a step by step\\(\\)": () => runtime.step(() => undefined),
    "Placement of 256 B by late": () => runtime.persistent.place("scalars", "late", [{ name: "x", size: 4 }]),
    "Closing of the runtime by close\\(\\)": () => runtime.close(),
  };
  for (const [named, call] of Object.entries(illegal)) {
    test(`${named} is rejected by name, and has no effect`, () => {
      open();
      const body = (): void => {
        grow();
        call();
      };
      rejects(
        "CAPTURE_REJECTED",
        () => runtime.capture("bad", body),
        new RegExp(`^${named} is not allowed inside capture "bad"`),
      );
      assert.equal(first(), 3);
      assert.equal(runtime.arena.figures.pins, 0);
      assert.equal(runtime.budget.usedBy("graph"), 0);
      runtime.capture("good", grow).replay();
      assert.equal(first(), 6);
    });
  }

  test("an async function is rejected", () => {
    open();
    const body = async (): Promise<void> => grow();
    rejects("CAPTURE_REJECTED", () => runtime.capture("async", body), /is async/);
  });

  test("different work each time is rejected", () => {
    open();
    let calls = 0;
    const body = (): void => {
      for (let time = 0; time <= calls; time++) grow();
      calls += 1;
    };
    rejects("CAPTURE_REJECTED", () => runtime.capture("restless", body), /1 commands .* then 2/);
    assert.equal(first(), 3);
  });

  test("a capture inside a capture has a separate error", () => {
    open({ capture: "auto" });
    rejects("CAPTURE_ORDER", () => runtime.capture("outer", () => void runtime.capture("inner", grow)));
  });
});

test("lazy resources are created before the recording", () => {
  open();
  let scratch: Storage | undefined;
  const graph = runtime.capture("lazy", () => {
    scratch ??= runtime.arena.allocate(4 * count, "lazy scratch");
    runtime.copy(scratch, state);
    grow();
  });
  graph.replay();
  assert.equal(first(), 6);
});

test("a replay that differs from the direct run is rejected with the buffer and the byte", () => {
  open({ capture: "on" }, (driver) =>
    interceptCalls(driver, (call, _args, proceed) => {
      const result = proceed();
      if (call === "launchGraph") {
        runtime.synchronize();
        device.alterBytes(state.span, (found) => {
          found[17]! ^= 4;
        });
      }
      return result;
    }),
  );
  rejects("CAPTURE_MISMATCH", () => runtime.capture("grow", grow), /first in "state" at byte 17 of 4000/);
  assert.equal(first(), 3);
});

test("memory and host nodes, or a missing node, are rejected", () => {
  for (const [injected, message] of [
    [{ memory: 1 }, /1 memory nodes/],
    [{ host: 2 }, /2 host nodes/],
    [{ kernel: 0 }, /0 work nodes for 1 recorded commands/],
  ] as const) {
    open({ capture: "on" }, (driver) =>
      interceptCalls(driver, (call, _args, proceed) => {
        const result = proceed();
        if (call !== "endCapture") return result;
        const graph = result as Graph;
        return Object.assign(graph, { nodes: { ...graph.nodes, ...injected } });
      }),
    );
    rejects("CAPTURE_NODES", () => runtime.capture("grow", grow), message);
    assert.equal(first(), 3);
    runtime.close();
  }
});

test("with capture auto a rejection is reported once, and each replay runs the work directly", () => {
  open({ capture: "auto" });
  const body = (): void => {
    runtime.arena.free(runtime.arena.allocate(64, "scratch"));
    grow();
  };
  const work = [runtime.capture("a", body), runtime.capture("b", body)];
  assert.deepEqual(
    work.map(({ mode }) => mode),
    ["direct", "direct"],
  );
  assert.match(
    work[0]!.reason ?? "",
    /Free by scratch is not allowed inside capture "a"|Allocation of 64 B by scratch/,
  );
  assert.equal(first(), 3);
  work[0]!.replay();
  assert.equal(first(), 6);
  assert.equal(printed.filter((text) => /a capture was rejected/.test(text)).length, 1);
});

test("with capture off the work runs directly and the driver records nothing", () => {
  let captures = 0;
  open({ capture: "off" }, (driver) =>
    interceptCalls(driver, (call, _args, proceed) => {
      if (call === "beginCapture") captures += 1;
      return proceed();
    }),
  );
  const work = runtime.capture("grow", grow);
  assert.deepEqual([work.mode, work.reason], ["direct", "HOLDFAST_CAPTURE is off"]);
  work.replay();
  assert.equal(first(), 6);
  assert.equal(captures, 0);
});

test("a function that creates new views each time is captured", () => {
  open();
  const graph = runtime.capture("views", () => {
    const half = runtime.view(state, 0, 2 * count, "half");
    const kernel = runtime.kernel(basicKernels.scale);
    runtime.launch({ op: "grow", kernel, blocks: 1, arguments: [half, half, factor, count / 2] });
  });
  graph.replay();
  const values = new Float32Array(runtime.read(state).buffer);
  assert.deepEqual([values[0], values[count / 2 - 1], values[count / 2]], [6, 6, 3]);
});

describe("side streams", () => {
  const growOn = (side: Stream): void => {
    const kernel = runtime.kernel(basicKernels.scale);
    const values = [state, state, factor, count];
    runtime.launch({ op: "grow", kernel, blocks: blockCount(count), arguments: values, stream: side });
  };

  test("a side stream that forks from the captured stream and joins it is captured", () => {
    open();
    const [side, other] = [runtime.createStream(), runtime.createStream()];
    const graph = runtime.capture("forked", () => {
      grow();
      runtime.orderStreams(runtime.stream, side);
      growOn(side);
      runtime.orderStreams(side, other);
      growOn(other);
      runtime.orderStreams(other, runtime.stream);
      grow();
    });
    assert.equal(first(), 3);
    graph.replay();
    assert.equal(first(), 48);
  });

  test("an event covers the work before it: later work must be joined separately", () => {
    open();
    const [side] = runtime.sideStreams(1) as [Stream];
    const body = (isCombined: boolean) => (): void => {
      runtime.orderStreams(runtime.stream, side);
      growOn(side);
      const early = runtime.recordEvent(side);
      growOn(side);
      const late = isCombined ? runtime.recordEvent(side) : undefined;
      runtime.waitEvent(early, runtime.stream);
      if (late) {
        runtime.waitEvent(late, runtime.stream);
        runtime.destroyEvent(late);
        grow();
      }
      runtime.destroyEvent(early);
    };
    rejects(
      "CAPTURE_REJECTED",
      () => runtime.capture("half joined", body(false)),
      /was not joined to the captured stream/,
    );
    assert.equal(first(), 3);
    runtime.capture("joined", body(true)).replay();
    assert.equal(first(), 24);
  });

  test("an event from outside a capture is rejected inside it", () => {
    open();
    const event = runtime.recordEvent(runtime.stream);
    rejects("CAPTURE_REJECTED", () =>
      runtime.capture("foreign", () => runtime.waitEvent(event, runtime.stream)),
    );
    runtime.destroyEvent(event);
  });

  test("side streams are the same ones each time", () => {
    open();
    const three = runtime.sideStreams(3);
    assert.equal(new Set([runtime.stream, ...three]).size, 4);
    assert.deepEqual(runtime.sideStreams(2), three.slice(0, 2));
    const first = runtime.sideStreams(2, { isHighPriority: true });
    assert.equal(new Set([runtime.stream, ...three, ...first]).size, 6);
    assert.deepEqual(runtime.sideStreams(1, { isHighPriority: true }), first.slice(0, 1));
  });

  for (const wrap of [strict, (driver: Driver) => driver]) {
    test(`work on a stream outside the capture is rejected by name, and does not run (${wrap.name})`, () => {
      open({ capture: "on" }, wrap);
      const side = runtime.createStream();
      const message = /^Launch on stream \d+, which does not wait for the captured stream, by grow/;
      rejects("CAPTURE_REJECTED", () => runtime.capture("strange", () => growOn(side)), message);
      rejects("CAPTURE_REJECTED", () =>
        runtime.capture("waits", () => runtime.orderStreams(side, runtime.stream)),
      );
      runtime.orderStreams(side, runtime.stream);
      assert.equal(first(), 3);
    });

    test(`a side stream that is not joined before the end is rejected, without effect (${wrap.name})`, () => {
      open({ capture: "on" }, wrap);
      const side = runtime.createStream();
      const body = (): void => {
        runtime.orderStreams(runtime.stream, side);
        growOn(side);
      };
      rejects(
        "CAPTURE_REJECTED",
        () => runtime.capture("unjoined", body),
        /was not joined to the captured stream/,
      );
      let isFirst = true;
      const restless = (): void => {
        if (!isFirst) body();
        isFirst = false;
      };
      rejects("CAPTURE_REJECTED", () => runtime.capture("restless", restless));
      runtime.orderStreams(side, runtime.stream);
      assert.equal(first(), 3);
    });
  }
});

describe("a capture of collectives", () => {
  /** A driver that cannot record the kernel `scale`, as some GPUs cannot record collectives; and the numbers of recorded launches. */
  function openWithoutRecording(): number[] {
    const recorded: number[] = [];
    let launches: number | undefined;
    open({ capture: "auto" }, (driver) =>
      interceptCalls(strict(driver), (call, args, proceed) => {
        if (call === "beginCapture") launches = 0;
        if (call === "endCapture" && launches !== undefined) {
          recorded.push(launches);
          launches = undefined;
        }
        if (call === "launch" && launches !== undefined) {
          launches++;
          const { kernel } = args[1] as { kernel: unknown };
          if (kernel === runtime.kernel(basicKernels.scale))
            throw new HoldfastError("CAPTURE_REJECTED", "cannot be recorded");
        }
        return proceed();
      }),
    );
    Object.defineProperty(runtime, "isCollective", {
      value: (kernel: unknown) => kernel === runtime.kernel(basicKernels.scale),
    });
    return recorded;
  }

  /** state ← state + state */
  function double(): void {
    const kernel = runtime.kernel(basicKernels.add);
    const values = [state, state, state, count];
    runtime.launch({ op: "double", kernel, blocks: blockCount(count), arguments: values });
  }

  function exchange(): void {
    double();
    grow();
    grow();
    double();
  }

  test("runs them between graphs if they can't be recorded", () => {
    const recorded = openWithoutRecording();
    runtime.upload([{ source: new Float32Array([3]), target: factor }]);
    const work = runtime.capture("exchange", exchange, undefined, exchange);
    assert.deepEqual([work.mode, work.launches, work.nodes?.kernel], ["graph", 4, 2]);
    assert.deepEqual(recorded.slice(-3), [1, 0, 1]);
    assert.equal(first(), 3);
    for (const expected of [108, 3888]) {
      work.replay();
      assert.equal(first(), expected);
    }
    assert.equal(printed.filter((line) => line.includes("collectives run between graphs")).length, 1);
    work.close();
    rejects("CLOSED", () => work.replay());
  });

  test("runs directly if the rest can't be recorded either", () => {
    openWithoutRecording();
    const body = (): void => {
      exchange();
      void runtime.read(state);
    };
    const work = runtime.capture("exchange", body, undefined, body);
    assert.deepEqual([work.mode, work.launches, first()], ["direct", undefined, 3]);
    work.replay();
    assert.equal(first(), 48);
  });
});
