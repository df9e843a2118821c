/** Streams and events: order inside a stream, and across streams only by events. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, type Span, span } from "../../units/index.js";
import type { Stream } from "../driver.js";
import { openCpuDriver } from "./driver.js";
import { encodeModule } from "./wasm.js";

function open() {
  const driver = openCpuDriver({ threads: 1, maximumBytes: 2 ** 20 });
  const memory = driver.reserve(bytes(65_536));
  driver.commit(memory);
  const cell = (index: number): Span => span(memory.address + index, 1);
  return {
    driver,
    cell,
    set: (stream: Stream, index: number, byte: number) => driver.fill(stream, cell(index), byte),
    copy: (stream: Stream, to: number, from: number) => driver.copyOnDevice(stream, cell(to), cell(from)),
    at: (index: number) => driver.deviceBytes(cell(index))[0],
    trap: driver.loadKernel({
      name: "trap",
      parameters: [],
      wasm: encodeModule([
        { name: "trap", parameters: ["i32", "i32"], results: [], body: (code) => code.op("unreachable") },
      ]),
    }),
  };
}

test("work runs in order, and not before a synchronize", () => {
  const { driver, set, copy, at } = open();
  const stream = driver.createStream();
  set(stream, 0, 5);
  copy(stream, 1, 0);
  set(stream, 0, 6);
  assert.deepEqual([at(0), at(1)], [0, 0]);
  driver.synchronize(stream);
  assert.deepEqual([at(0), at(1)], [6, 5]);
  driver.close();
});

test("a wait runs the other stream up to the event and no further", () => {
  const { driver, set, copy, at } = open();
  const [a, b, event] = [driver.createStream(), driver.createStream(), driver.createEvent()];
  set(b, 0, 1);
  driver.recordEvent(event, b);
  set(b, 0, 2);
  driver.waitEvent(a, event);
  copy(a, 1, 0);
  driver.synchronize(a);
  assert.deepEqual([at(0), at(1)], [1, 1]);
  driver.synchronize(b);
  assert.equal(at(0), 2);
  driver.close();
});

test("without a wait two streams race, and the reader that runs first sees the old bytes", () => {
  const { driver, set, copy, at } = open();
  const [a, b] = [driver.createStream(), driver.createStream()];
  set(b, 0, 1);
  copy(a, 1, 0);
  driver.synchronize(a);
  driver.synchronize(b);
  assert.deepEqual([at(0), at(1)], [1, 0]);
  driver.close();
});

test("a wait keeps its position, even if the event is recorded again", () => {
  const { driver, set, at } = open();
  const [a, b, event] = [driver.createStream(), driver.createStream(), driver.createEvent()];
  set(b, 0, 1);
  driver.recordEvent(event, b);
  driver.waitEvent(a, event);
  set(b, 0, 2);
  driver.recordEvent(event, b);
  driver.synchronize(a);
  assert.equal(at(0), 1);
  assert.equal(driver.isReached(event), false);
  driver.synchronizeEvent(event);
  assert.equal(at(0), 2);
  driver.close();
});

test("a wait for an event that was never recorded returns at once", () => {
  const { driver, set, at } = open();
  const [stream, event] = [driver.createStream(), driver.createEvent()];
  driver.waitEvent(stream, event);
  driver.synchronizeEvent(event);
  assert.equal(driver.isReached(event), true);
  set(stream, 0, 3);
  driver.synchronize(stream);
  assert.equal(at(0), 3);
  driver.close();
});

test("isReached() reports completed work and runs nothing", () => {
  const { driver, set, at } = open();
  const [stream, event] = [driver.createStream(), driver.createEvent()];
  set(stream, 0, 1);
  driver.recordEvent(event, stream);
  set(stream, 0, 2);
  for (let i = 0; i < 3; i++) assert.equal(driver.isReached(event), false);
  assert.equal(at(0), 0);
  driver.synchronizeEvent(event);
  assert.equal(driver.isReached(event), true);
  assert.equal(at(0), 1);
  driver.close();
});

test("streams that wait for each other alternately all complete", () => {
  const { driver, copy, set, at } = open();
  const [a, b] = [driver.createStream(), driver.createStream()];
  set(a, 0, 7);
  for (let i = 0; i < 50; i++) {
    const event = driver.createEvent();
    const [from, to] = i % 2 === 0 ? [a, b] : [b, a];
    driver.recordEvent(event, from);
    driver.waitEvent(to, event);
    copy(to, i + 1, i);
  }
  driver.synchronize(a);
  assert.equal(at(50), 7);
  driver.close();
});

test("a queue without a synchronize runs before it grows without bound", () => {
  const { driver, set, at } = open();
  const stream = driver.createStream();
  for (let i = 0; i < 10_000; i++) set(stream, 0, i % 251);
  assert.notEqual(at(0), 0);
  driver.synchronize(stream);
  assert.equal(at(0), 9999 % 251);
  driver.close();
});

test("a failure drops the work after it, is thrown once, and leaves the stream usable", () => {
  const { driver, set, at, trap } = open();
  const [stream, early, late] = [driver.createStream(), driver.createEvent(), driver.createEvent()];
  set(stream, 0, 1);
  driver.recordEvent(early, stream);
  driver.launch(stream, { kernel: trap, blocks: 1, arguments: [] });
  set(stream, 0, 2);
  driver.recordEvent(late, stream);
  driver.synchronizeEvent(early);
  assert.throws(() => driver.synchronize(stream), { code: "KERNEL_FAILED", message: /"trap".*unreachable/ });
  assert.equal(at(0), 1);
  driver.synchronize(stream);
  set(stream, 0, 3);
  driver.synchronize(stream);
  assert.equal(at(0), 3);
  driver.close();
});

test("a failure is thrown by waits for the lost work, and not by waits for earlier work", () => {
  const { driver, set, copy, at, trap } = open();
  const [a, b] = [driver.createStream(), driver.createStream()];
  const [early, late] = [driver.createEvent(), driver.createEvent()];
  set(b, 0, 1);
  driver.recordEvent(early, b);
  driver.launch(b, { kernel: trap, blocks: 1, arguments: [] });
  driver.recordEvent(late, b);
  driver.waitEvent(a, late);
  copy(a, 1, 0);
  assert.throws(() => driver.synchronize(a), { code: "KERNEL_FAILED" });
  assert.equal(at(1), 0);
  assert.equal(driver.isReached(early), true);
  driver.synchronizeEvent(early);
  assert.throws(() => driver.isReached(late), { code: "KERNEL_FAILED" });
  assert.throws(() => driver.synchronizeEvent(late), { code: "KERNEL_FAILED" });
  driver.synchronize(b);
  driver.close();
});

test("a failure while a long queue runs early is not thrown by the unrelated call", () => {
  const { driver, set, trap } = open();
  const stream = driver.createStream();
  driver.launch(stream, { kernel: trap, blocks: 1, arguments: [] });
  for (let i = 0; i < 10_000; i++) set(stream, 0, 1);
  assert.throws(() => driver.synchronize(stream), { code: "KERNEL_FAILED" });
  driver.close();
});
