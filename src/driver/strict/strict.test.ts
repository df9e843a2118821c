/** The rules that `strict` enforces, each broken once. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { type Bytes, bytes, type Span, span } from "../../units/index.js";
import { basicKernels, type CpuDriver, openCpuDriver } from "../cpu/index.js";
import type { Driver, HostSpan, Stream } from "../driver.js";
import { strict } from "./strict.js";

const kib64 = bytes(65536);

let device: CpuDriver;
let driver: Required<Driver>;
let stream: Stream;
let range: Span;

beforeEach(() => {
  device = openCpuDriver({ threads: 1, maximumBytes: 4 * 1024 * 1024 });
  driver = strict(device);
  stream = driver.createStream();
  range = driver.reserve(kib64);
  driver.commit(range);
});

afterEach(() => device.close());

function annotated(offset: number, size: number, state: "live" | "dead" = "live"): Span {
  const target = span(range.address + offset, size);
  driver.annotate(target, state);
  return target;
}

function hostSpan(size: Bytes): HostSpan {
  return { memory: driver.allocateHost(size), offset: bytes(0), size };
}

describe("addresses", () => {
  test("work on memory that is not live is rejected", () => {
    rejects("DEAD_ADDRESS", () => driver.fill(stream, range, 0), /fill accesses/);
    const live = annotated(0, 512);
    driver.fill(stream, live, 0);
    driver.annotate(live, "dead");
    rejects("DEAD_ADDRESS", () => driver.fill(stream, live, 0));
  });

  test("a kernel argument that is not entirely live is rejected, with its index", () => {
    const kernel = driver.loadKernel(basicKernels.fill);
    annotated(0, 512);
    const tooLong = span(range.address, 1024);
    const launch = { kernel, blocks: 1, arguments: [tooLong, 1, 256] };
    rejects("DEAD_ADDRESS", () => driver.launch(stream, launch), /launch of fill \(argument 0\)/);
  });

  test("a span cannot be marked live twice, or without committed memory", () => {
    annotated(0, 1024);
    rejects("DEAD_ADDRESS", () => driver.annotate(span(range.address + 512, 1024), "live"));
    const empty = driver.reserve(kib64);
    rejects("DEAD_ADDRESS", () => driver.annotate(empty, "live"));
    rejects("DEAD_ADDRESS", () => driver.annotate(span(1 << 30, 256), "live"), /is not reserved/);
  });

  test("one copy may write adjacent live spans", () => {
    annotated(0, 256);
    annotated(256, 256);
    driver.fill(stream, span(range.address, 512), 1);
    driver.synchronize(stream);
    assert.ok(device.deviceBytes(span(range.address, 512)).every((byte) => byte === 1));
  });
});

describe("order", () => {
  test("the host may not read before the copy is known to have completed", () => {
    const live = annotated(0, 256);
    const host = hostSpan(bytes(256));
    driver.copyToHost(stream, host, live);
    rejects("UNORDERED_ACCESS", () => driver.hostBytes(host), /the host .* copyToHost on stream 1/);
    driver.synchronize(stream);
    driver.hostBytes(host);
  });

  test("the host may not write staging that a copy still reads", () => {
    const live = annotated(0, 256);
    const host = hostSpan(bytes(256));
    driver.hostBytes(host).fill(3);
    driver.copyToDevice(stream, live, host);
    rejects("UNORDERED_ACCESS", () => driver.hostBytes(host));
    const event = driver.createEvent();
    driver.recordEvent(event, stream);
    driver.synchronizeEvent(event);
    driver.hostBytes(host);
  });

  test("two streams on the same bytes need an event between them", () => {
    const live = annotated(0, 256);
    const other = driver.createStream();
    driver.fill(stream, live, 1);
    rejects("UNORDERED_ACCESS", () => driver.fill(other, live, 2), /stream 2 .* stream 1/);
    const event = driver.createEvent();
    driver.recordEvent(event, stream);
    driver.waitEvent(other, event);
    driver.fill(other, live, 2);
  });

  test("an event orders streams through a third one", () => {
    const live = annotated(0, 256);
    const [second, third] = [driver.createStream(), driver.createStream()];
    const [first, next] = [driver.createEvent(), driver.createEvent()];
    driver.fill(stream, live, 1);
    driver.recordEvent(first, stream);
    driver.waitEvent(second, first);
    driver.recordEvent(next, second);
    driver.waitEvent(third, next);
    driver.fill(third, live, 2);
  });

  test("two streams may read the same bytes, and write different ones", () => {
    const [source, a, b] = [annotated(0, 256), annotated(256, 256), annotated(512, 256)];
    const other = driver.createStream();
    driver.copyOnDevice(stream, a, source);
    driver.copyOnDevice(other, b, source);
  });

  test("a rejected call does not change the order", () => {
    const live = annotated(0, 256);
    const other = driver.createStream();
    driver.fill(stream, live, 1);
    rejects("BAD_ARGUMENT", () => driver.fill(stream, live, 999));
    driver.synchronize(stream);
    driver.fill(other, live, 2);
  });
});

describe("foreign memory", () => {
  test("a copy from memory that the driver did not pin is rejected", () => {
    const live = annotated(0, 256);
    const foreign = {
      memory: { type: "host", id: 77, size: bytes(256) },
      offset: bytes(0),
      size: bytes(256),
    } as const;
    rejects(
      "FOREIGN_MEMORY",
      () => driver.copyToDevice(stream, live, foreign),
      /could move or be garbage-collected/,
    );
    const freed = hostSpan(bytes(256));
    driver.freeHost(freed.memory);
    rejects("FOREIGN_MEMORY", () => driver.copyToDevice(stream, live, freed));
  });

  test("a copy past the end of pinned memory is rejected", () => {
    const live = annotated(0, 512);
    const host = hostSpan(bytes(256));
    rejects(
      "BAD_ARGUMENT",
      () => driver.copyToDevice(stream, live, { ...host, size: bytes(512) }),
      /outside/,
    );
  });
});

describe("capture", () => {
  const illegal: Record<string, () => unknown> = {
    reserve: () => driver.reserve(kib64),
    commit: () => driver.commit(range),
    release: () => driver.release(range),
    allocateHost: () => driver.allocateHost(kib64),
    synchronize: () => driver.synchronize(stream),
    loadKernel: () => driver.loadKernel(basicKernels.add),
    isReached: () => driver.isReached(driver.createEvent()),
    synchronizeEvent: () => driver.synchronizeEvent(driver.createEvent()),
  };

  for (const [call, make] of Object.entries(illegal)) {
    test(`${call} inside a capture is rejected by name, and the driver is not called`, () => {
      driver.beginCapture(stream, "thread-local");
      rejects("CAPTURE_REJECTED", make, new RegExp(`^${call}\\b`));
      // The driver's capture is still valid, because the driver was not called.
      assert.equal(driver.endCapture(stream).nodes.kernel, 0);
    });
  }

  test("host copies and host reads inside a capture are rejected", () => {
    const live = annotated(0, 256);
    const host = hostSpan(bytes(256));
    driver.beginCapture(stream, "thread-local");
    rejects("CAPTURE_REJECTED", () => driver.copyToDevice(stream, live, host), /copyToDevice of 256 B/);
    rejects("CAPTURE_REJECTED", () => driver.copyToHost(stream, host, live));
    rejects("CAPTURE_REJECTED", () => driver.hostBytes(host));
    driver.endCapture(stream);
  });

  test("only the thread-local mode is allowed", () => {
    rejects("CAPTURE_REJECTED", () => driver.beginCapture(stream, "relaxed" as never), /"relaxed"/);
    rejects("CAPTURE_ORDER", () => driver.endCapture(stream));
  });

  test("captures do not nest, and end once", () => {
    driver.beginCapture(stream, "thread-local");
    rejects("CAPTURE_ORDER", () => driver.beginCapture(driver.createStream(), "thread-local"));
    driver.endCapture(stream);
    rejects("CAPTURE_ORDER", () => driver.endCapture(stream));
  });

  test("a side stream that is not joined before the end is rejected", () => {
    const [a, b] = [annotated(0, 256), annotated(256, 256)];
    const branch = driver.createStream();
    const event = driver.createEvent();
    driver.beginCapture(stream, "thread-local");
    driver.fill(stream, a, 1);
    driver.recordEvent(event, stream);
    driver.waitEvent(branch, event);
    driver.fill(branch, b, 2);
    rejects("CAPTURE_ORDER", () => driver.endCapture(stream), /were not joined to it/);
  });

  test("two unordered side streams of a capture on the same bytes are rejected", () => {
    const live = annotated(0, 256);
    const branch = driver.createStream();
    const event = driver.createEvent();
    driver.beginCapture(stream, "thread-local");
    driver.recordEvent(event, stream);
    driver.waitEvent(branch, event);
    driver.fill(branch, live, 2);
    rejects("UNORDERED_ACCESS", () => driver.fill(stream, live, 1));
  });

  test("a graph whose buffer is dead cannot be launched", () => {
    const live = annotated(0, 256);
    driver.beginCapture(stream, "thread-local");
    driver.fill(stream, live, 7);
    const graph = driver.endCapture(stream);
    driver.instantiate(graph);
    driver.launchGraph(stream, graph);
    driver.synchronize(stream);
    driver.annotate(live, "dead");
    rejects("DEAD_ADDRESS", () => driver.launchGraph(stream, graph), /graph \d+: fill/);
  });
});

test("destroyed handles and handles of another driver are rejected", () => {
  const live = annotated(0, 256);
  const gone = driver.createStream();
  driver.destroyStream(gone);
  rejects("CLOSED", () => driver.fill(gone, live, 0), /stream 2 is not open/);
  rejects("CLOSED", () => driver.fill({ type: "stream", id: 0 }, live, 0));
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.unloadKernel(kernel);
  rejects("CLOSED", () => driver.launch(stream, { kernel, blocks: 1, arguments: [live, 1, 1] }));
});
