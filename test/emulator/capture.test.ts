/**
 * What a capture allows and forbids, with CUDA's error codes. A GPU can answer the same questions:
 * TEST_DEVICE=cuda uses the system's libcuda instead of the emulator.
 */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { loadKoffi } from "../../src/driver/foreign-functions.js";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";
import { testDevice } from "../support/test-device.js";

const isOnGpu = testDevice === "cuda";
const skip = isOnGpu ? false : emulatorMissing;
const skipOnGpu = isOnGpu ? "this reads the emulator's records" : skip;
const emulator = skip || isOnGpu ? undefined : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator?.folder);
const driver = skip ? undefined! : bare.cuda.driver;
const status = skip ? undefined! : driver.status;

afterEach(() => emulator?.reset());

const threadLocal = 1;
const [unsupported, invalidated, unmatched, unjoined, isolation] = [900, 901, 903, 904, 905];
const illegalState = 401;

const noteCode = `extern "C" __global__ void __launch_bounds__(32) hf_note(unsigned* out, unsigned value) {
  if (threadIdx.x == 0) out[0] = out[0] * 10 + value;
}`;
const note = skip ? 0 : bare.load(noteCode, "hf_note");

const begin = (stream: number, mode = threadLocal) => driver.cuStreamBeginCapture_v2(stream, mode);
/** The graph, or the status if there is none. */
function end(stream: number): { graph: number; status: number } {
  const answer = status.cuStreamEndCapture(stream, bare.out.address);
  return { graph: bare.out.u64(), status: answer };
}

/** The value that the kernel recorded. */
const notes = (memory: number): number => bare.read(memory, new Uint32Array(1))[0]!;

function nodeTypes(graph: number): number[] {
  driver.cuGraphGetNodes(graph, 0, bare.out.address);
  const count = bare.out.u64();
  driver.cuGraphGetNodes(graph, bare.out.address + 8, bare.out.address);
  const nodes = Array.from({ length: count }, (_, index) => bare.out.u64(8 + 8 * index));
  return nodes.map((node) => {
    driver.cuGraphNodeGetType(node, bare.out.address);
    return bare.out.i32();
  });
}

test("work in a capture is recorded and runs with every launch of the graph", { skip }, () => {
  const stream = bare.stream();
  const [memory, other] = [bare.put(new Uint32Array(1)), bare.put(new Uint32Array(1))];
  begin(stream);
  bare.launch(note, 1, 32, [memory, { u32: 1 }], stream);
  bare.launch(note, 1, 32, [memory, { u32: 2 }], stream);
  driver.cuMemcpyDtoDAsync_v2(other, memory, 4, stream);
  driver.cuMemsetD8Async(other, 0, 1, stream);
  driver.cuStreamIsCapturing(stream, bare.out.address);
  assert.equal(bare.out.i32(), 1);
  const { graph, status: answer } = end(stream);
  assert.equal(answer, 0);
  assert.equal(notes(memory), 0);
  assert.deepEqual(nodeTypes(graph), [0, 0, 1, 2]);

  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  driver.cuGraphDestroy(graph);
  driver.cuGraphUpload(executable, stream);
  for (const expected of [12, 1212]) {
    driver.cuGraphLaunch(executable, stream);
    driver.cuStreamSynchronize(stream);
    assert.equal(notes(memory), expected);
    assert.equal(notes(other), expected - (expected % 256));
  }
  driver.cuGraphExecDestroy(executable);
  driver.cuStreamDestroy_v2(stream);
});

/** Each is illegal on a thread that captures. */
const illegalCalls: readonly (readonly [string, (stream: number) => number])[] = [
  ["cuMemAlloc", () => status.cuMemAlloc_v2(bare.out.address, 256)],
  ["cuMemFree", () => status.cuMemFree_v2(kept.memory)],
  ["cuMemHostAlloc", () => status.cuMemHostAlloc(bare.out.address, 256, 0)],
  ["cuStreamSynchronize", (stream) => status.cuStreamSynchronize(stream)],
  ["cuStreamSynchronize of another stream", () => status.cuStreamSynchronize(kept.stream)],
  ["cuStreamQuery", (stream) => status.cuStreamQuery(stream)],
  ["cuEventQuery", () => status.cuEventQuery(kept.event)],
  ["cuEventSynchronize", () => status.cuEventSynchronize(kept.event)],
];

const kept = skip
  ? undefined!
  : { memory: bare.put(new Uint32Array(1)), stream: bare.stream(), event: bare.event() };

for (const [name, call] of illegalCalls) {
  test(`${name} in a capture returns 900 and invalidates it, and later calls return 901`, { skip }, () => {
    const stream = bare.stream();
    driver.cuEventRecord(kept.event, kept.stream);
    driver.cuStreamSynchronize(kept.stream);
    begin(stream);
    bare.launch(note, 1, 32, [kept.memory, { u32: 1 }], stream);
    assert.equal(call(stream), unsupported);
    driver.cuStreamIsCapturing(stream, bare.out.address);
    assert.equal(bare.out.i32(), 2);
    assert.equal(bare.tryLaunch(note, 1, 32, [kept.memory, { u32: 1 }], stream), invalidated);
    assert.deepEqual(end(stream), { graph: 0, status: invalidated });
    assert.equal(notes(kept.memory), 0);
    // The stream is usable again.
    begin(stream);
    assert.equal(end(stream).status, 0);
    driver.cuStreamDestroy_v2(stream);
  });
}

test("CUDA captures a copy from memory that is not pinned: Holdfast must reject it", { skip }, () => {
  const stream = bare.stream();
  const pageable = new Uint8Array(64);
  begin(stream);
  const answer = status.cuMemcpyHtoDAsync_v2(kept.memory, Number(loadKoffi().address(pageable)), 4, stream);
  const { graph, status: ending } = end(stream);
  assert.deepEqual([answer, ending], [0, 0]);
  driver.cuGraphDestroy(graph);
});

test("events take other streams into a capture, and they have to join again", { skip }, () => {
  const [stream, other] = [bare.stream(), bare.stream()];
  const [fork, join] = [bare.event(), bare.event()];
  const memory = bare.put(new Uint32Array(1));
  const record = (isCombined: boolean) => {
    begin(stream);
    bare.launch(note, 1, 32, [memory, { u32: 1 }], stream);
    driver.cuEventRecord(fork, stream);
    driver.cuStreamWaitEvent(other, fork, 0);
    bare.launch(note, 1, 32, [memory, { u32: 2 }], other);
    driver.cuEventRecord(join, other);
    if (isCombined) driver.cuStreamWaitEvent(stream, join, 0);
    bare.launch(note, 1, 32, [memory, { u32: 3 }], stream);
    return end(stream);
  };
  assert.deepEqual(record(false), { graph: 0, status: unjoined });
  const { graph, status: answer } = record(true);
  assert.equal(answer, 0);
  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  driver.cuGraphLaunch(executable, stream);
  driver.cuStreamSynchronize(stream);
  assert.equal(notes(memory), 123);
  // The other stream executes its work again.
  bare.launch(note, 1, 32, [memory, { u32: 4 }], other);
  driver.cuStreamSynchronize(other);
  assert.equal(notes(memory), 1234);
});

test("a capture does not wait for work outside it", { skip }, () => {
  const [stream, other] = [bare.stream(), bare.stream()];
  const event = bare.event();
  driver.cuEventRecord(event, other);
  begin(stream);
  assert.equal(status.cuStreamWaitEvent(stream, event, 0), isolation);
  assert.equal(end(stream).status, invalidated);
});

test("a capture ends on the stream where it began, once", { skip }, () => {
  const [stream, other] = [bare.stream(), bare.stream()];
  const fork = bare.event();
  assert.equal(end(stream).status, illegalState);
  begin(stream);
  assert.equal(status.cuStreamBeginCapture_v2(stream, threadLocal), illegalState);
  driver.cuEventRecord(fork, stream);
  driver.cuStreamWaitEvent(other, fork, 0);
  assert.equal(end(other).status, unmatched);
  end(stream);
  assert.equal(end(stream).status, illegalState);
});

test("the default stream can't capture", { skip }, () => {
  assert.equal(status.cuStreamBeginCapture_v2(0, threadLocal), unsupported);
});

test("in the relaxed mode an allocation is accepted, and the emulator records its use", {
  skip: skipOnGpu,
}, () => {
  const stream = bare.stream();
  assert.deepEqual(
    (["captures.threadLocal", "captures.global", "captures.relaxed"] as const).map((key) =>
      emulator!.get(key),
    ),
    [0, 0, 0],
  );
  for (const mode of [0, 1, 2]) {
    begin(stream, mode);
    assert.equal(status.cuMemAlloc_v2(bare.out.address, 256), mode === 2 ? 0 : unsupported);
    assert.equal(end(stream).status, mode === 2 ? 0 : invalidated);
  }
  assert.deepEqual(
    (["captures.threadLocal", "captures.global", "captures.relaxed"] as const).map((key) =>
      emulator!.get(key),
    ),
    [1, 1, 1],
  );
});

test("nodes can be injected, and a graph that allocates is launched once", { skip: skipOnGpu }, () => {
  const stream = bare.stream();
  begin(stream);
  emulator!.inject(stream, 3);
  emulator!.inject(stream, 10);
  const { graph } = end(stream);
  assert.deepEqual(nodeTypes(graph), [3, 10]);
  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  assert.deepEqual(
    [status.cuGraphLaunch(executable, stream), status.cuGraphLaunch(executable, stream)],
    [0, 1],
  );
});

test("a graph whose kernel was unloaded faults when it is launched", { skip: skipOnGpu }, () => {
  const stream = bare.stream();
  const module = bare.loadModule(bare.compile(noteCode).cubin);
  const entry = bare.make((to) => driver.cuModuleGetFunction(to, module, "hf_note"));
  begin(stream);
  bare.launch(entry, 1, 32, [kept.memory, { u32: 1 }], stream);
  const { graph } = end(stream);
  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  driver.cuModuleUnload(module);
  driver.cuGraphLaunch(executable, stream);
  assert.equal(status.cuStreamSynchronize(stream), 700);
});
