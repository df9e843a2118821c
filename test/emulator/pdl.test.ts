/**
 * Programmatic dependent launch on the emulator, with the setting `early`: a launch sees the worst case of a
 * real GPU. Before its wait it sees memory from before the preceding kernel; after it, everything.
 */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach } from "node:test";
import { BareCuda } from "../support/bare-cuda.js";
import { ClusterKernels } from "../support/cluster-kernels.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);
const driver = skip ? undefined! : bare.cuda.driver;
const clusters = new ClusterKernels(bare, emulator);

beforeEach(() => {
  if (!skip) emulator.set("early", 1);
});
afterEach(() => {
  if (!skip) emulator.reset();
});

const launchFailed = 719;
const threads = 64;
const count = 3 * threads;

const declare = (name: string, parameters: string): string =>
  `extern "C" __global__ void __launch_bounds__(${threads}) ${name}(${parameters})`;
const id = "const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;";

/** Adds to every element. */
const addCode = `${declare("hf_add", "unsigned* values, unsigned term")} {
  ${id}
  gridDependencyWait();
  values[id] += term;
}`;
const add = skip ? 0 : bare.load(addCode, "hf_add");

/** Reads its elements before the wait and after it. `beforeWait` makes its threads wait for each other. */
const readCode = (beforeWait = ""): string => `
${declare("hf_look", "const unsigned* values, unsigned* atFirst, unsigned* atLast")} {
  ${id}
  const unsigned seen = values[id];
  ${beforeWait}
  gridDependencyWait();
  atFirst[id] = seen;
  atLast[id] = values[id];
}`;
const readers = {
  "whose threads are independent": skip ? 0 : bare.load(readCode(), "hf_look"),
  "with barriers": skip ? 0 : bare.load(readCode("__syncthreads();"), "hf_look"),
};
const look = readers["whose threads are independent"];

interface Memory {
  readonly values: number;
  readonly atFirst: number;
  readonly atLast: number;
}

/** Every value is 5. */
function makeMemory(): Memory {
  const values = bare.put(new Uint32Array(count).fill(5));
  return { values, atFirst: bare.allocate(4 * count), atLast: bare.allocate(4 * count) };
}

const launchAdd = ({ values }: Memory, addend: number, stream = 0): void =>
  bare.launch(add, 3, threads, [values, { u32: addend }], stream);

function launchLook({ values, atFirst, atLast }: Memory, { entry = look, stream = 0, isPdl = 1 } = {}): void {
  bare.launchPdl(entry, 3, threads, [values, atFirst, atLast], { stream, isPdl });
}

/** The number that all threads saw before the wait, and the one after it. */
function numbersIn({ atFirst, atLast }: Memory): number[] {
  assert.deepEqual([driver.status.cuStreamSynchronize(0), emulator.lastFault()], [0, ""]);
  return [atFirst, atLast].map((address) => {
    const [first, ...others] = new Set(bare.read(address, new Uint32Array(count)));
    assert.equal(others.length, 0);
    return first!;
  });
}

/** Runs the work on a fresh stream, and returns the numbers that were seen. */
function numbersAfter(send: (memory: Memory, stream: number) => void): number[] {
  const memory = makeMemory();
  const stream = bare.stream();
  send(memory, stream);
  driver.cuStreamSynchronize(stream);
  driver.cuStreamDestroy_v2(stream);
  return numbersIn(memory);
}

for (const [name, entry] of Object.entries(readers)) {
  for (const order of ["forward", "reversed"] as const) {
    test(`a kernel ${name} sees old memory before it waits, and current memory after that, ${order}`, {
      skip,
    }, () => {
      emulator.set("reversed", order === "reversed" ? 1 : 0);
      const seen = numbersAfter((memory, stream) => {
        launchAdd(memory, 2, stream);
        launchLook(memory, { entry, stream });
      });
      assert.deepEqual(seen, [5, 7]);
    });
  }

  test(`a kernel ${name} sees current memory without PDL, or if the setting is off`, {
    skip,
  }, () => {
    const serialized = numbersAfter((memory, stream) => {
      launchAdd(memory, 2, stream);
      launchLook(memory, { entry, stream, isPdl: 0 });
    });
    emulator.set("early", 0);
    const without = numbersAfter((memory, stream) => {
      launchAdd(memory, 2, stream);
      launchLook(memory, { entry, stream });
    });
    assert.deepEqual(
      [serialized, without],
      [
        [7, 7],
        [7, 7],
      ],
    );
  });
}

test("only the changes of the directly preceding kernel are hidden, even if that kernel used PDL", {
  skip,
}, () => {
  const seen = numbersAfter((memory, stream) => {
    launchAdd(memory, 2, stream);
    bare.launchPdl(add, 3, threads, [memory.values, { u32: 30 }], { stream });
    launchLook(memory, { stream });
  });
  assert.deepEqual(seen, [7, 37]);
  const other = makeMemory();
  const elsewhere = numbersAfter((memory, stream) => {
    launchAdd(memory, 2, stream);
    launchAdd(other, 30, stream);
    launchLook(memory, { stream });
  });
  assert.deepEqual(elsewhere, [7, 7]);
});

test("a launch after a fill, a copy, a graph, a wait of the host, or another stream's kernel starts in order", {
  skip,
}, () => {
  const between: Record<string, (memory: Memory, stream: number) => void> = {
    fill: ({ atLast }, stream) => driver.cuMemsetD8Async(atLast, 0, 4, stream),
    copy: ({ atFirst, atLast }, stream) => driver.cuMemcpyDtoDAsync_v2(atLast, atFirst, 4, stream),
    wait: (_, stream) => driver.cuStreamSynchronize(stream),
  };
  for (const [name, send] of Object.entries(between)) {
    const seen = numbersAfter((memory, stream) => {
      launchAdd(memory, 2, stream);
      send(memory, stream);
      launchLook(memory, { stream });
    });
    assert.deepEqual(seen, [7, 7], name);
  }
  const afterGraph = numbersAfter((memory, stream) => {
    replay(
      record(stream, () => launchAdd(memory, 2, stream)),
      stream,
    );
    launchLook(memory, { stream });
  });
  assert.deepEqual(afterGraph, [7, 7]);
  const afterOtherStream = numbersAfter((memory, stream) => {
    launchAdd(memory, 2);
    launchLook(memory, { stream });
  });
  assert.deepEqual(afterOtherStream, [7, 7]);
});

test("deferred work sees the same old memory as work that runs at once", { skip }, () => {
  emulator.set("deferred", 1);
  const seen = numbersAfter((memory, stream) => {
    launchAdd(memory, 2, stream);
    launchLook(memory, { stream });
  });
  assert.deepEqual(seen, [5, 7]);
});

function record(stream: number, send: () => void): number {
  driver.cuStreamBeginCapture_v2(stream, 1);
  send();
  const graph = bare.make((to) => driver.cuStreamEndCapture(stream, to));
  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  driver.cuGraphDestroy(graph);
  return executable;
}

function replay(executable: number, stream: number): void {
  driver.cuGraphLaunch(executable, stream);
  driver.cuStreamSynchronize(stream);
}

test("every replay of a graph has its own old memory, by its streams", { skip }, () => {
  const [stream, side] = [bare.stream(), bare.stream()];
  const [fork, join] = [bare.event(), bare.event()];
  const [first, main, sideMemory] = [makeMemory(), makeMemory(), makeMemory()];
  const executable = record(stream, () => {
    // It has no preceding node, whatever runs on the stream before the graph.
    launchLook(first, { stream });
    driver.cuEventRecord(fork, stream);
    driver.cuStreamWaitEvent(side, fork, 0);
    // Recorded alternately, so that the preceding node is not the one that was recorded before.
    launchAdd(main, 2, stream);
    launchAdd(sideMemory, 30, side);
    launchLook(main, { stream });
    launchLook(sideMemory, { stream: side });
    driver.cuEventRecord(join, side);
    driver.cuStreamWaitEvent(stream, join, 0);
  });
  for (const seen of [
    { first: [105, 105], main: [5, 7], branch: [5, 35] },
    { first: [205, 205], main: [7, 9], branch: [35, 65] },
  ]) {
    launchAdd(first, 100, stream);
    replay(executable, stream);
    assert.deepEqual({ first: numbersIn(first), main: numbersIn(main), branch: numbersIn(sideMemory) }, seen);
  }
  driver.cuGraphExecDestroy(executable);
});

const copyShape = { blocks: 2, threads, cluster: 2, bytes: 1024 };
const copyBody = `
  Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(memory);
  unsigned* seen = reinterpret_cast<unsigned*>(memory + 256);
  const unsigned* from = values + blockIdx.x * ${threads};
  if (threadIdx.x == 0) {
    mbarrierInit(mbarrier, 2);
    mbarrierArriveExpectTx(mbarrier, ${8 * threads});
    cpAsyncBulk(seen, from, ${4 * threads}, mbarrier);
  }
  gridDependencyWait();
  if (threadIdx.x == 0) {
    cpAsyncBulk(seen + ${threads}, from, ${4 * threads}, mbarrier);
    mbarrierArrive(mbarrier);
  }
  __syncthreads();
  mbarrierWait(mbarrier, 0);
  atFirst[blockIdx.x * ${threads} + threadIdx.x] = seen[threadIdx.x];
  atLast[blockIdx.x * ${threads} + threadIdx.x] = seen[${threads} + threadIdx.x];`;
const copyParameters = "const unsigned* values, unsigned* atFirst, unsigned* atLast";

for (const order of ["forward", "reversed"] as const) {
  test(`a copy that starts before the wait loads old memory, however late it completes, ${order}`, {
    skip,
  }, () => {
    emulator.set("reversed", order === "reversed" ? 1 : 0);
    const copying = clusters.load(copyShape, copyParameters, copyBody);
    const memory = makeMemory();
    // Of the third block, which the copies do not write.
    bare.write(memory.atFirst, new Uint32Array(count).fill(5));
    bare.write(memory.atLast, new Uint32Array(count).fill(7));
    launchAdd(memory, 2);
    const values = [memory.values, memory.atFirst, memory.atLast];
    bare.launchPdl(copying, 2, threads, values, { sharedBytes: copyShape.bytes });
    assert.deepEqual(numbersIn(memory), [5, 7]);
  });
}

/** The status of a kernel with this body after one that adds 2 to the values. */
function runBody(body: string): [number, string, number[]] {
  const code = `${declare("hf_body", "unsigned* values, unsigned* out")} { ${id} ${body} }`;
  const entry = bare.load(code, "hf_body");
  const { values, atLast } = makeMemory();
  launchAdd({ values, atFirst: 0, atLast }, 2);
  bare.launchPdl(entry, 3, threads, [values, atLast]);
  const status = driver.status.cuStreamSynchronize(0);
  const results = status === 0 ? [...new Set(bare.read(atLast, new Uint32Array(count)))] : [];
  return [status, emulator.lastFault(), results];
}

test("a kernel that overwrites the previous kernel's output before the wait is a fault", { skip }, () => {
  const fault = "hf_body: writes before it has waited for the preceding launch";
  const writesFirst = "values[id] = 9; gridDependencyWait(); out[id] = values[id];";
  assert.deepEqual(runBody(writesFirst), [launchFailed, fault, []]);
  emulator.reset();
  emulator.set("early", 1);
  assert.deepEqual(runBody("values[id] = 9; out[id] = 9;"), [launchFailed, fault, []]);
  emulator.reset();
  emulator.set("early", 1);
  assert.deepEqual(runBody("gridDependencyWait(); values[id] = 9; out[id] = values[id];"), [0, "", [9]]);
});

test("a thread may end without a wait, and no thread waits for it", { skip }, () => {
  const body =
    "if (id % 2 == 0) { out[id] = 8; return; } const unsigned seen = values[id]; gridDependencyWait(); out[id] = seen + 10 * values[id];";
  assert.deepEqual(runBody(body), [0, "", [8, 75]]);
});

test("a block sees old memory that earlier blocks have written since, and their writes after the wait", {
  skip,
}, () => {
  const body = `const unsigned seen = values[threadIdx.x];
    gridDependencyWait();
    values[id] = 9;
    out[id] = 10 * values[threadIdx.x] + seen;`;
  assert.deepEqual(runBody(body), [0, "", [95]]);
});

test("threads at a barrier with a thread that waits for the preceding launch are not a deadlock", {
  skip,
}, () => {
  const body = `__shared__ unsigned loaded;
    const unsigned seen = values[id];
    if (threadIdx.x == 0) { gridDependencyWait(); loaded = values[id]; }
    __syncthreads();
    out[id] = 10 * loaded + seen;`;
  assert.deepEqual(runBody(body), [0, "", [75]]);
});

test("a fault before the wait leaves current memory", { skip }, () => {
  const code = `${declare("hf_stray", "const unsigned* values")} {
    const unsigned seen = values[threadIdx.x];
    if (seen == 5) *reinterpret_cast<volatile unsigned*>(16) = seen;
    gridDependencyWait();
  }`;
  const entry = bare.load(code, "hf_stray");
  const memory = makeMemory();
  launchAdd(memory, 2);
  bare.launchPdl(entry, 1, threads, [memory.values]);
  assert.match(emulator.lastFault(), /^hf_stray: an access at 0x10/);
  emulator.reset();
  assert.deepEqual([...new Set(bare.read(memory.values, new Uint32Array(count)))], [7]);
});
