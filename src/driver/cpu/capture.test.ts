/** Captures on the CPU driver: recorded work, illegal calls, and the conditions for launching a graph. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, span } from "../../units/index.js";
import type { Event, HostMemory, Kernel, Stream } from "../driver.js";
import { basicKernels } from "./basic-kernels.js";
import { type CpuDriver, openCpuDriver } from "./driver.js";

function open() {
  const driver = openCpuDriver({ threads: 1, maximumBytes: 2 ** 20 });
  const memory = driver.reserve(bytes(65_536));
  driver.commit(memory);
  const stream = driver.createStream();
  const host = driver.allocateHost(bytes(16));
  const kernels = {
    fill: driver.loadKernel(basicKernels.fill),
    scale: driver.loadKernel(basicKernels.scale),
    add: driver.loadKernel(basicKernels.add),
  };
  /** The n-th float32 of the memory. */
  const cell = (index: number) => span(memory.address + 4 * index, 4);
  return {
    driver,
    memory,
    stream,
    host,
    kernels,
    cell,
    at: (index: number) => new Float32Array(driver.deviceBytes(cell(index)).slice().buffer)[0],
    set: (on: Stream, index: number, value: number) =>
      driver.launch(on, { kernel: kernels.fill, blocks: 1, arguments: [cell(index), value, 1] }),
    add: (on: Stream, a: number, b: number, out: number) =>
      driver.launch(on, { kernel: kernels.add, blocks: 1, arguments: [cell(a), cell(b), cell(out), 1] }),
  };
}

test("captured work is recorded, not run, and each launch of the graph runs it", () => {
  const { driver, stream, set, add, at } = open();
  set(stream, 0, 1);
  driver.synchronize(stream);
  driver.beginCapture(stream, "thread-local");
  add(stream, 0, 0, 0);
  const graph = driver.endCapture(stream);
  driver.synchronize(stream);
  assert.equal(at(0), 1);
  driver.instantiate(graph);
  for (let i = 0; i < 3; i++) driver.launchGraph(stream, graph);
  driver.synchronize(stream);
  assert.equal(at(0), 8);
  driver.close();
});

test("a replay reads the current memory", () => {
  const { driver, stream, kernels, cell, set, at } = open();
  driver.beginCapture(stream, "thread-local");
  driver.launch(stream, { kernel: kernels.scale, blocks: 1, arguments: [cell(0), cell(1), cell(2), 1] });
  const graph = driver.endCapture(stream);
  driver.instantiate(graph);
  for (const factor of [2, 5]) {
    set(stream, 0, 3);
    set(stream, 2, factor);
    driver.launchGraph(stream, graph);
    driver.synchronize(stream);
    assert.equal(at(1), 3 * factor);
  }
  driver.close();
});

test("a graph counts its nodes by kind", () => {
  const { driver, stream, host, cell, set } = open();
  driver.beginCapture(stream, "thread-local");
  set(stream, 0, 1);
  set(stream, 1, 1);
  driver.copyToDevice(stream, cell(2), { memory: host, offset: bytes(0), size: bytes(4) });
  driver.copyToHost(stream, { memory: host, offset: bytes(4), size: bytes(4) }, cell(2));
  driver.copyOnDevice(stream, cell(3), cell(2));
  driver.fill(stream, cell(4), 0);
  const graph = driver.endCapture(stream);
  assert.deepEqual(graph.nodes, { kernel: 2, copy: 3, fill: 1, memory: 0, host: 0 });
  driver.close();
});

test("a stream that waits for a captured event joins the capture, and its work is in the graph", () => {
  const { driver, stream, set, add, at } = open();
  const side = driver.createStream();
  const [fork, join] = [driver.createEvent(), driver.createEvent()];
  driver.beginCapture(stream, "thread-local");
  set(stream, 0, 2);
  driver.recordEvent(fork, stream);
  driver.waitEvent(side, fork);
  add(side, 0, 0, 1);
  driver.recordEvent(join, side);
  driver.waitEvent(stream, join);
  add(stream, 0, 1, 2);
  const graph = driver.endCapture(stream);
  driver.synchronize(side);
  assert.equal(at(1), 0);
  driver.instantiate(graph);
  driver.launchGraph(side, graph);
  driver.synchronize(side);
  assert.deepEqual([at(0), at(1), at(2)], [2, 4, 6]);
  driver.close();
});

test("a side stream that was never joined is named, and both streams are usable again", () => {
  const { driver, stream, set, at } = open();
  const side = driver.createStream();
  const [fork, join] = [driver.createEvent(), driver.createEvent()];
  driver.beginCapture(stream, "thread-local");
  driver.recordEvent(fork, stream);
  driver.waitEvent(side, fork);
  set(side, 0, 1);
  driver.recordEvent(join, side);
  driver.waitEvent(stream, join);
  set(side, 0, 2);
  assert.throws(() => driver.endCapture(stream), {
    code: "CAPTURE_ORDER",
    message: /1 commands of stream #2 were not joined to it/,
  });
  set(side, 0, 3);
  driver.synchronize(side);
  assert.equal(at(0), 3);
  driver.close();
});

interface InCapture {
  readonly driver: CpuDriver;
  readonly stream: Stream;
  readonly inside: Event;
  readonly host: HostMemory;
  readonly kernel: Kernel;
  readonly memory: ReturnType<CpuDriver["reserve"]>;
}

const illegal: Record<string, (context: InCapture) => void> = {
  reserve: ({ driver }) => driver.reserve(bytes(1)),
  commit: ({ driver, memory }) => driver.commit(memory),
  release: ({ driver, memory }) => driver.release(memory),
  allocateHost: ({ driver }) => driver.allocateHost(bytes(1)),
  freeHost: ({ driver, host }) => driver.freeHost(host),
  loadKernel: ({ driver }) => driver.loadKernel(basicKernels.copy),
  unloadKernel: ({ driver, kernel }) => driver.unloadKernel(kernel),
  synchronize: ({ driver, stream }) => driver.synchronize(stream),
  destroyStream: ({ driver, stream }) => driver.destroyStream(stream),
  synchronizeEvent: ({ driver, inside }) => driver.synchronizeEvent(inside),
  isReached: ({ driver, inside }) => driver.isReached(inside),
};

for (const [call, act] of Object.entries(illegal)) {
  test(`${call} inside a capture is rejected, invalidates it, and is named at its end`, () => {
    const { driver, stream, host, kernels, memory, set, at } = open();
    const inside = driver.createEvent();
    driver.beginCapture(stream, "thread-local");
    set(stream, 0, 1);
    driver.recordEvent(inside, stream);
    const rejected = { code: "CAPTURE_REJECTED", message: new RegExp(`\\b${call}\\b`) };
    assert.throws(() => act({ driver, stream, inside, host, kernel: kernels.add, memory }), rejected);
    assert.throws(() => driver.allocateHost(bytes(7)), { code: "CAPTURE_REJECTED" });
    assert.throws(() => set(stream, 0, 2), rejected);
    assert.throws(() => driver.endCapture(stream), rejected);
    set(stream, 0, 3);
    driver.synchronize(stream);
    assert.equal(at(0), 3);
    assert.equal(driver.hostBytes({ memory: host, offset: bytes(0), size: bytes(4) }).length, 4);
    driver.close();
  });
}

test("a capture cannot wait for work outside it, and other streams run normally", () => {
  const { driver, stream, set, at } = open();
  const [other, outside] = [driver.createStream(), driver.createEvent()];
  driver.recordEvent(outside, other);
  driver.beginCapture(stream, "thread-local");
  set(other, 0, 4);
  driver.synchronize(other);
  assert.equal(at(0), 4);
  assert.equal(driver.isReached(outside), true);
  assert.throws(() => driver.waitEvent(stream, outside), {
    code: "CAPTURE_REJECTED",
    message: /event #1.*outside/,
  });
  assert.throws(() => driver.endCapture(stream), { code: "CAPTURE_REJECTED" });
  driver.close();
});

test("an event recorded inside an ended capture is unusable until it is recorded again", () => {
  const { driver, stream } = open();
  const event = driver.createEvent();
  driver.beginCapture(stream, "thread-local");
  driver.recordEvent(event, stream);
  driver.endCapture(stream);
  const rejected = { code: "CAPTURE_REJECTED", message: /Record it again/ };
  assert.throws(() => driver.waitEvent(stream, event), rejected);
  assert.throws(() => driver.isReached(event), rejected);
  assert.throws(() => driver.synchronizeEvent(event), rejected);
  driver.recordEvent(event, stream);
  assert.equal(driver.isReached(event), true);
  driver.close();
});

test("captures begin and end in order, and a call out of order leaves the open one valid", () => {
  const { driver, stream, set } = open();
  const other = driver.createStream();
  assert.throws(() => driver.endCapture(stream), { code: "CAPTURE_ORDER", message: /no capture is open/ });
  driver.beginCapture(stream, "thread-local");
  assert.throws(() => driver.beginCapture(stream, "thread-local"), { code: "CAPTURE_ORDER" });
  assert.throws(() => driver.beginCapture(other, "thread-local"), { code: "CAPTURE_ORDER" });
  assert.throws(() => driver.endCapture(other), { code: "CAPTURE_ORDER", message: /began on stream #1/ });
  set(stream, 0, 1);
  assert.equal(driver.endCapture(stream).nodes.kernel, 1);
  assert.throws(() => driver.endCapture(stream), { code: "CAPTURE_ORDER" });
  driver.close();
});

test("a graph launched inside a capture is included in the new graph", () => {
  const { driver, stream, set, add, at } = open();
  driver.beginCapture(stream, "thread-local");
  add(stream, 0, 0, 0);
  const doubling = driver.endCapture(stream);
  driver.instantiate(doubling);
  driver.beginCapture(stream, "thread-local");
  set(stream, 0, 1);
  driver.launchGraph(stream, doubling);
  driver.launchGraph(stream, doubling);
  const graph = driver.endCapture(stream);
  assert.equal(graph.nodes.kernel, 3);
  driver.destroyGraph(doubling);
  driver.instantiate(graph);
  driver.launchGraph(stream, graph);
  driver.synchronize(stream);
  assert.equal(at(0), 4);
  driver.close();
});

test("a graph can be launched only between instantiate() and destroyGraph()", () => {
  const { driver, stream, set } = open();
  driver.beginCapture(stream, "thread-local");
  set(stream, 0, 1);
  const graph = driver.endCapture(stream);
  assert.throws(() => driver.launchGraph(stream, graph), { code: "CAPTURE_ORDER", message: /instantiate/ });
  driver.instantiate(graph);
  driver.launchGraph(stream, graph);
  driver.destroyGraph(graph);
  driver.synchronize(stream);
  assert.throws(() => driver.launchGraph(stream, graph), { code: "CLOSED", message: /Graph #1/ });
  assert.throws(() => driver.instantiate(graph), { code: "CLOSED" });
  assert.throws(() => driver.destroyGraph(graph), { code: "CLOSED" });
  driver.close();
});

test("a graph whose memory, kernel or host memory was released is rejected with the node", () => {
  const gone = {
    DEAD_ADDRESS: (context: ReturnType<typeof open>) => context.driver.release(context.memory),
    CLOSED: (context: ReturnType<typeof open>) => context.driver.unloadKernel(context.kernels.fill),
  };
  for (const [code, act] of Object.entries(gone)) {
    const context = open();
    const { driver, stream } = context;
    driver.beginCapture(stream, "thread-local");
    context.set(stream, 0, 1);
    const graph = driver.endCapture(stream);
    driver.instantiate(graph);
    driver.launchGraph(stream, graph);
    act(context);
    assert.throws(() => driver.launchGraph(stream, graph), {
      code,
      message: /Node 0 of graph #1 \(launch\)/,
    });
    assert.throws(() => driver.instantiate(graph), { code });
    driver.close();
  }
  const { driver, stream, host, cell } = open();
  driver.beginCapture(stream, "thread-local");
  driver.copyToDevice(stream, cell(0), { memory: host, offset: bytes(0), size: bytes(4) });
  const graph = driver.endCapture(stream);
  driver.instantiate(graph);
  driver.freeHost(host);
  assert.throws(() => driver.launchGraph(stream, graph), { code: "CLOSED", message: /host memory #1/ });
  driver.close();
});
