/** The CPU driver as a whole: handles, arguments, host memory, failures, closing. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, GiB, type Span, span } from "../../units/index.js";
import type { Argument, driverCalls, HostSpan, Launch } from "../driver.js";
import { readHostThreads } from "../host-threads.js";
import { basicKernels, blockCount } from "./basic-kernels.js";
import { openCpuDriver } from "./driver.js";
import { encodeModule } from "./wasm.js";

function open() {
  const driver = openCpuDriver({ threads: 1, maximumBytes: 2 ** 20 });
  const memory = driver.reserve(bytes(65_536));
  driver.commit(memory);
  return { driver, memory, stream: driver.createStream(), host: driver.allocateHost(bytes(1024)) };
}

test("the driver describes itself", () => {
  const driver = openCpuDriver({ threads: 2 });
  const { name, ...rest } = driver.describe();
  assert.match(name, /^CPU \(2 threads, .+\)$/);
  assert.deepEqual(rest, {
    kind: "cpu",
    index: 0,
    memory: "host",
    addressSpace: 4 * GiB - 65_536,
    granularity: 65_536,
    canCommitInParts: true,
    parallelism: 2,
  });
  const { total, free } = driver.memory();
  assert.ok(total <= 4 * GiB && free <= total && free > 0);
  driver.close();
  const byDefault = openCpuDriver();
  assert.equal(byDefault.describe().parallelism, readHostThreads().threads);
  byDefault.close();
});

test("bytes are copied to the device and back, by spans at any offset", () => {
  const { driver, memory, stream, host } = open();
  const there: HostSpan = { memory: host, offset: bytes(3), size: bytes(5) };
  const back: HostSpan = { memory: host, offset: bytes(100), size: bytes(5) };
  driver.hostBytes(there).set([1, 2, 3, 4, 5]);
  driver.copyToDevice(stream, span(memory.address + 7, 5), there);
  driver.copyOnDevice(stream, span(memory.address + 1001, 5), span(memory.address + 7, 5));
  driver.fill(stream, span(memory.address + 1002, 2), 0xff);
  driver.copyToHost(stream, back, span(memory.address + 1001, 5));
  driver.synchronize(stream);
  assert.deepEqual([...driver.hostBytes(back)], [1, 255, 255, 4, 5]);
  assert.deepEqual([...driver.deviceBytes(span(memory.address + 6, 7))], [0, 1, 2, 3, 4, 5, 0]);
  driver.close();
});

test("arguments are copied during the call", () => {
  const { driver, memory, stream } = open();
  const kernel = driver.loadKernel(basicKernels.fill);
  const target = { address: memory.address, size: bytes(4) } as { -readonly [K in keyof Span]: Span[K] };
  const args: Argument[] = [span(memory.address + 4, 4), 1.5, 1];
  driver.fill(stream, target, 7);
  driver.launch(stream, { kernel, blocks: 1, arguments: args });
  target.address = span(memory.address + 100, 4).address;
  args[0] = target;
  args[1] = 9;
  driver.synchronize(stream);
  const written = driver.deviceBytes(span(memory.address, 104)).slice();
  assert.deepEqual([...written.slice(0, 4)], [7, 7, 7, 7]);
  assert.equal(new Float32Array(written.buffer)[1], 1.5);
  assert.equal(new Float32Array(written.buffer)[25], 0);
  driver.close();
});

test("addresses above 2 GiB are passed to the kernel unchanged", () => {
  const driver = openCpuDriver({ threads: 1 });
  driver.reserve(bytes(3 * GiB));
  const high = driver.reserve(bytes(65_536));
  driver.commit(high);
  const stream = driver.createStream();
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.launch(stream, { kernel, blocks: blockCount(5000), arguments: [high, 3, 5000] });
  driver.fill(stream, span(high.address + 4, 1), 0xee);
  driver.synchronize(stream);
  const floats = new Float32Array(driver.deviceBytes(high).slice().buffer);
  assert.deepEqual([floats[0], floats[4999], floats[5000]], [3, 3, 0]);
  assert.equal(driver.deviceBytes(high)[4], 0xee);
  driver.close();
});

test("a launch of no blocks is legal and does nothing", () => {
  const { driver, memory, stream } = open();
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.launch(stream, { kernel, blocks: 0, arguments: [memory, 1, 100] });
  driver.synchronize(stream);
  assert.equal(
    driver.deviceBytes(memory).findIndex((byte) => byte !== 0),
    -1,
  );
  driver.close();
});

test("wrong launches are rejected with the valid values", () => {
  const { driver, memory, stream } = open();
  const kernel = driver.loadKernel(basicKernels.fill);
  const rejected: readonly (readonly [RegExp, Omit<Launch, "kernel">])[] = [
    [/-1 blocks/, { blocks: -1, arguments: [memory, 1, 1] }],
    [/1.5 blocks/, { blocks: 1.5, arguments: [memory, 1, 1] }],
    [/2147483648 blocks/, { blocks: 2 ** 31, arguments: [memory, 1, 1] }],
    [/2 arguments; it takes 3 \(out, f32, u32\)/, { blocks: 1, arguments: [memory, 1] }],
    [/Argument 0 of kernel "fill" \(out\) is 5; pass a span/, { blocks: 1, arguments: [5, 1, 1] }],
    [
      /Argument 1 of kernel "fill" \(f32\) is a span; pass a number/,
      { blocks: 1, arguments: [memory, memory, 1] },
    ],
    [
      /Argument 2 .* is -1; pass a whole number from 0 to 4294967295/,
      { blocks: 1, arguments: [memory, 1, -1] },
    ],
    [/is 0.5; pass a whole number/, { blocks: 1, arguments: [memory, 1, 0.5] }],
  ];
  for (const [message, launch] of rejected) {
    assert.throws(() => driver.launch(stream, { kernel, ...launch }), { code: "BAD_ARGUMENT", message });
  }
  driver.close();
});

test("addresses without committed memory are rejected, in particular address 0", () => {
  const { driver, memory, stream, host } = open();
  const kernel = driver.loadKernel(basicKernels.fill);
  const source: HostSpan = { memory: host, offset: bytes(0), size: bytes(8) };
  for (const range of [span(0, 8), span(memory.address - 4, 8), span(memory.address + 65_532, 8)]) {
    const rejected = { code: "DEAD_ADDRESS" };
    assert.throws(() => driver.launch(stream, { kernel, blocks: 1, arguments: [range, 1, 1] }), rejected);
    assert.throws(() => driver.fill(stream, range, 0), rejected);
    assert.throws(() => driver.copyToDevice(stream, range, source), rejected);
    assert.throws(() => driver.copyToHost(stream, source, range), rejected);
    assert.throws(() => driver.copyOnDevice(stream, span(memory.address, 8), range), rejected);
    assert.throws(() => driver.copyOnDevice(stream, range, span(memory.address, 8)), rejected);
    assert.throws(() => driver.deviceBytes(range), rejected);
  }
  driver.close();
});

test("copies of different sizes, spans outside host memory and invalid fill bytes are rejected", () => {
  const { driver, memory, stream, host } = open();
  const hostSpan = (offset: number, size: number) => ({ memory: host, offset, size }) as HostSpan;
  const eight = span(memory.address, 8);
  const rejected = (message: RegExp) => ({ code: "BAD_ARGUMENT", message });
  assert.throws(() => driver.copyToDevice(stream, eight, hostSpan(0, 4)), rejected(/4 and 8 bytes/));
  assert.throws(() => driver.copyToHost(stream, hostSpan(0, 4), eight), rejected(/8 and 4 bytes/));
  assert.throws(() => driver.copyOnDevice(stream, eight, span(memory.address, 4)), rejected(/4 and 8 bytes/));
  assert.throws(
    () => driver.copyToDevice(stream, eight, hostSpan(1020, 8)),
    rejected(/offset 1020 .* 1024 bytes/),
  );
  assert.throws(() => driver.hostBytes(hostSpan(-1, 4)), rejected(/offset -1/));
  assert.throws(() => driver.hostBytes(hostSpan(0.5, 4)), rejected(/offset 0.5/));
  for (const byte of [-1, 256, 1.5, Number.NaN]) {
    assert.throws(() => driver.fill(stream, eight, byte), rejected(/whole number from 0 to 255/));
  }
  driver.close();
});

test("the error of a kernel that does not load has the reason", () => {
  const { driver } = open();
  const { wasm } = basicKernels.fill;
  const failed = (message: RegExp) => ({ code: "KERNEL_FAILED", message });
  assert.throws(() => driver.loadKernel({ name: "none", parameters: [] }), {
    code: "UNSUPPORTED",
    message: /"none"/,
  });
  const load = (source: Parameters<typeof driver.loadKernel>[0]) => () => driver.loadKernel(source);
  assert.throws(
    load({ name: "junk", parameters: [], wasm: new Uint8Array(9) }),
    failed(/"junk" cannot be loaded/),
  );
  assert.throws(
    load({ name: "other", parameters: ["out", "f32", "u32"], wasm: wasm! }),
    failed(/exports no function/),
  );
  assert.throws(
    load({ name: "fill", parameters: ["out"], wasm: wasm! }),
    failed(/takes 5 arguments; it must take 3/),
  );
  driver.close();
});

test("queued work runs before its kernel is unloaded or its memory released", () => {
  const { driver, memory, stream } = open();
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 1, 1] });
  driver.unloadKernel(kernel);
  assert.notDeepEqual([...driver.deviceBytes(span(memory.address, 4))], [0, 0, 0, 0]);
  driver.fill(stream, memory, 9);
  driver.release(memory);
  const [next, owner] = [driver.reserve(memory.size), driver.createStream()];
  assert.deepEqual(next, memory);
  driver.commit(next);
  driver.fill(owner, next, 5);
  driver.synchronize(owner);
  driver.synchronize(stream);
  assert.equal(driver.deviceBytes(next)[0], 5);
  driver.close();
});

test("host memory may be freed while copies from it are queued", () => {
  const { driver, memory, stream, host } = open();
  const source: HostSpan = { memory: host, offset: bytes(0), size: bytes(4) };
  driver.hostBytes(source).fill(3);
  driver.copyToDevice(stream, span(memory.address, 4), source);
  driver.freeHost(host);
  driver.synchronize(stream);
  assert.deepEqual([...driver.deviceBytes(span(memory.address, 5))], [3, 3, 3, 3, 0]);
  driver.close();
});

test("closed handles and handles of another driver are rejected by their number", () => {
  const { driver, memory, stream, host } = open();
  const event = driver.createEvent();
  const kernel = driver.loadKernel(basicKernels.fill);
  const launch: Launch = { kernel, blocks: 1, arguments: [memory, 1, 1] };
  driver.destroyEvent(event);
  assert.throws(() => driver.recordEvent(event, stream), { code: "CLOSED", message: /Event #1/ });
  driver.unloadKernel(kernel);
  assert.throws(() => driver.launch(stream, launch), { code: "CLOSED", message: /Kernel #1/ });
  driver.freeHost(host);
  assert.throws(() => driver.freeHost(host), { code: "CLOSED", message: /Host memory #1/ });
  driver.destroyStream(stream);
  assert.throws(() => driver.synchronize(stream), { code: "CLOSED", message: /Stream #1/ });
  const other = openCpuDriver({ threads: 1 });
  driver.createStream();
  assert.throws(() => driver.synchronize(other.createStream()), {
    code: "CLOSED",
    message: /another driver/,
  });
  other.close();
  driver.close();
});

test("destroying a stream runs its work, and its events stay reached", () => {
  const { driver, memory, stream } = open();
  const event = driver.createEvent();
  driver.fill(stream, memory, 4);
  driver.recordEvent(event, stream);
  driver.destroyStream(stream);
  assert.equal(driver.deviceBytes(memory)[0], 4);
  assert.equal(driver.isReached(event), true);
  driver.close();
});

test("destroying a stream throws its failure first", () => {
  const { driver, stream } = open();
  const wasm = encodeModule([
    { name: "trap", parameters: ["i32", "i32"], results: [], body: (code) => code.op("unreachable") },
  ]);
  const kernel = driver.loadKernel({ name: "trap", parameters: [], wasm });
  driver.launch(stream, { kernel, blocks: 1, arguments: [] });
  assert.throws(() => driver.destroyStream(stream), { code: "KERNEL_FAILED" });
  driver.destroyStream(stream);
  driver.close();
});

test("after close() every call is rejected, and close() is idempotent", () => {
  const { driver, memory, stream, host } = open();
  const event = driver.createEvent();
  const kernel = driver.loadKernel(basicKernels.fill);
  driver.beginCapture(stream, "thread-local");
  const graph = driver.endCapture(stream);
  const hostSpan: HostSpan = { memory: host, offset: bytes(0), size: bytes(4) };
  const device = span(memory.address, 4);
  driver.fill(stream, memory, 1);
  driver.close();
  const calls: Record<
    Exclude<(typeof driverCalls)[number], "annotate" | "compileKernels" | "recall" | "remember" | "close">,
    () => void
  > = {
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
    loadKernel: () => driver.loadKernel(basicKernels.fill),
    unloadKernel: () => driver.unloadKernel(kernel),
    launch: () => driver.launch(stream, { kernel, blocks: 1, arguments: [device, 1, 1] }),
    beginCapture: () => driver.beginCapture(stream, "thread-local"),
    endCapture: () => driver.endCapture(stream),
    instantiate: () => driver.instantiate(graph),
    launchGraph: () => driver.launchGraph(stream, graph),
    destroyGraph: () => driver.destroyGraph(graph),
  };
  for (const [name, call] of Object.entries(calls)) assert.throws(call, { code: "CLOSED" }, name);
  assert.throws(() => driver.deviceBytes(device), { code: "CLOSED" });
  driver.close();
});

test("invalid options are rejected", () => {
  for (const threads of [0, -1, 1.5, Number.NaN]) {
    assert.throws(() => openCpuDriver({ threads }), {
      code: "BAD_SETTING",
      message: new RegExp(`threads is ${threads}`),
    });
  }
  assert.throws(() => openCpuDriver({ maximumBytes: 100 }), { code: "BAD_SETTING" });
});

test("host memory of no bytes, or of more than the host has, is rejected", () => {
  const { driver } = open();
  assert.throws(() => driver.allocateHost(bytes(0)), { code: "BAD_SIZE" });
  assert.throws(() => driver.allocateHost(bytes(2 ** 50)), { code: "OUT_OF_MEMORY" });
  driver.close();
});
