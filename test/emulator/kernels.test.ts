/** The emulator runs CUDA C++: threads, warps, blocks, shared memory, and the faults that a GPU would have. */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);

afterEach(() => {
  if (!skip) emulator.reset();
});

const misaligned = 716;
const illegalAddress = 700;
const launchFailed = 719;

/** The status of the device after a launch has run. */
function faultOf(entry: number, threads: number, input: Parameters<BareCuda["launch"]>[3]): [number, string] {
  assert.equal(bare.tryLaunch(entry, 1, threads, input), 0, "a launch itself returns before it runs");
  return [bare.cuda.driver.status.cuStreamSynchronize(0), emulator.lastFault()];
}

const sumCode = (barrier: string): string => `
  static __device__ __forceinline__ float addWarp(float value) {
    for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
  }
  extern "C" __global__ void __launch_bounds__(256) hf_sum(const float* input, float* sums, unsigned count) {
    __shared__ float parts[8];
    float sum = 0.0f;
    for (unsigned index = threadIdx.x; index < count; index += blockDim.x) sum += input[blockIdx.x * count + index];
    sum = addWarp(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    ${barrier}
    if (threadIdx.x < 32) {
      sum = addWarp(threadIdx.x < 8 ? parts[threadIdx.x] : 0.0f);
      if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
  }`;

const input = Float32Array.from({ length: 3 * 1000 }, (_, index) => (index % 17) - 3);
const expected = [0, 1, 2].map((row) =>
  input.slice(1000 * row, 1000 * (row + 1)).reduce((sum, value) => sum + value),
);

for (const order of ["forward", "reversed"] as const) {
  test(`blocks of threads add rows through shuffles and shared memory, ${order}`, { skip }, () => {
    emulator.set("reversed", order === "reversed" ? 1 : 0);
    const entry = bare.load(sumCode("__syncthreads();"), "hf_sum");
    const [source, target] = [bare.put(input), bare.allocate(12)];
    bare.launch(entry, 3, 256, [source, target, { u32: 1000 }]);
    assert.deepEqual([...bare.read(target, new Float32Array(3))], expected);
  });
}

test("the same sum without its barrier is wrong", { skip }, () => {
  const entry = bare.load(sumCode(""), "hf_sum");
  const [source, target] = [bare.put(input), bare.allocate(12)];
  bare.launch(entry, 3, 256, [source, target, { u32: 1000 }]);
  assert.notDeepEqual([...bare.read(target, new Float32Array(3))], expected);
});

test("a kernel whose threads are independent runs on every element", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(128) hf_scale(float* values, float by, int plus, double half) {
       const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
       values[index] = values[index] * by + (float)plus * (float)half + (float)gridDim.x;
     }`,
    "hf_scale",
  );
  const target = bare.put(Float32Array.from({ length: 256 }, (_, index) => index));
  bare.launch(entry, 2, 128, [target, { f32: 1.5 }, { i32: -8 }, { f64: 0.5 }]);
  const expected = Array.from({ length: 256 }, (_, index) => 1.5 * index - 4 + 2);
  assert.deepEqual([...bare.read(target, new Float32Array(256))], expected);
});

test("shuffles and ballots follow CUDA's rules, in segments too", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(64) hf_lanes(unsigned* out, long long* wide) {
       const unsigned all = 0xffffffffu, id = threadIdx.x;
       unsigned* row = out + 8 * id;
       row[0] = __shfl_xor_sync(all, id, 5);
       row[1] = __shfl_down_sync(all, id, 3);
       row[2] = __shfl_sync(all, id, 7);
       row[3] = __shfl_xor_sync(all, id, 4, 8);
       row[4] = __shfl_down_sync(all, id, 3, 8);
       row[5] = __shfl_sync(all, id, 9, 4);
       row[6] = __ballot_sync(all, id % 3 == 0);
       row[7] = (unsigned)(__popc(row[6]) * 100 + __ffs((int)(row[6] & ~1u)));
       wide[id] = __shfl_xor_sync(all, (long long)id << 40, 1);
     }`,
    "hf_lanes",
  );
  const [out, wide] = [bare.allocate(64 * 32), bare.allocate(64 * 8)];
  bare.launch(entry, 1, 64, [out, wide]);
  const rows = bare.read(out, new Uint32Array(64 * 8));
  const wides = bare.read(wide, new Uint32Array(64 * 2));
  for (let id = 0; id < 64; id++) {
    const warp = id - (id % 32);
    const lane = id % 32;
    let ballot = 0;
    for (let other = 0; other < 32; other++) if ((warp + other) % 3 === 0) ballot += 2 ** other;
    const next = ballot % 2 === 1 ? ballot - 1 : ballot;
    const ones = [...ballot.toString(2)].filter((digit) => digit === "1").length;
    assert.deepEqual(
      [...rows.slice(8 * id, 8 * id + 8)],
      [
        warp + (lane ^ 5),
        lane + 3 < 32 ? id + 3 : id,
        warp + 7,
        warp + (lane ^ 4),
        (lane % 8) + 3 < 8 ? id + 3 : id,
        warp + (lane - (lane % 4)) + 1,
        ballot,
        ones * 100 + [...next.toString(2)].reverse().indexOf("1") + 1,
      ],
      `thread ${id}`,
    );
    assert.equal(wides[2 * id + 1], (id ^ 1) << 8);
  }
});

test("half a warp can exchange values by itself, undisturbed by the other half", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(32) hf_halves(unsigned* out) {
       const unsigned id = threadIdx.x;
       unsigned value = id;
       if (id < 16) {
         for (int mask = 8; mask > 0; mask >>= 1) value += __shfl_xor_sync(0x0000ffffu, value, mask);
       } else {
         value = __shfl_xor_sync(0xffff0000u, value, 1);
       }
       out[id] = value;
     }`,
    "hf_halves",
  );
  const out = bare.allocate(128);
  bare.launch(entry, 1, 32, [out]);
  const expected = Array.from({ length: 32 }, (_, id) => (id < 16 ? 120 : id ^ 1));
  assert.deepEqual([...bare.read(out, new Uint32Array(32))], expected);
});

test("shared memory begins as NaN in every block", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(32) hf_fresh(float* out) {
       __shared__ float kept[32];
       out[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
       kept[threadIdx.x] = 1.0f;
     }`,
    "hf_fresh",
  );
  const out = bare.allocate(256);
  bare.launch(entry, 2, 32, [out]);
  assert.ok(bare.read(out, new Float32Array(64)).every(Number.isNaN));
});

test("a product and a sum are rounded separately, unless the code uses fma", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_round(float* out, float a, float c) {
       out[0] = a * a + c;
       out[1] = fmaf(a, a, c);
     }`,
    "hf_round",
  );
  const out = bare.allocate(8);
  const a = 1 + 2 ** -12;
  bare.launch(entry, 1, 1, [out, { f32: a }, { f32: -(1 + 2 ** -11) }]);
  assert.deepEqual([...bare.read(out, new Float32Array(2))], [0, 2 ** -24]);
});

test("0 - 0 is 0, also if one operand was an integer", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_zero(float* out, int x) {
       out[0] = 0.0f - (float)x;
       out[1] = -(float)x;
     }`,
    "hf_zero",
  );
  const out = bare.allocate(8);
  bare.launch(entry, 1, 1, [out, 0]);
  assert.deepEqual([...bare.read(out, new Float32Array(2))], [0, -0]);
});

test("threads that return before a barrier end the launch, and all later calls fail", {
  skip,
}, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(64) hf_leave(float* out, unsigned count) {
       if (threadIdx.x >= count) return;
       __syncthreads();
       out[threadIdx.x] = 1.0f;
     }`,
    "hf_leave",
  );
  const out = bare.allocate(256);
  bare.launch(entry, 1, 64, [out, { u32: 64 }]);
  assert.equal(bare.cuda.driver.status.cuStreamSynchronize(0), 0);
  const [status, text] = faultOf(entry, 64, [out, { u32: 40 }]);
  assert.equal(status, launchFailed);
  assert.equal(text, "hf_leave: 40 of 64 threads wait at a barrier");
  assert.equal(bare.cuda.driver.status.cuMemAlloc_v2(bare.out.address, 256), launchFailed);
  assert.equal(bare.cuda.driver.status.cuDeviceGetCount(bare.out.address), 0);
});

test("threads at two different barriers end the launch", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(64) hf_two(float* out) {
       if (threadIdx.x < 32) {
         __syncthreads();
       } else {
         __syncthreads();
       }
       out[threadIdx.x] = 1.0f;
     }`,
    "hf_two",
  );
  assert.equal(faultOf(entry, 64, [bare.allocate(256)])[0], launchFailed);
});

test("a shuffle that not all threads of its mask reach ends the launch", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(32) hf_alone(float* out) {
       float value = 1.0f;
       if (threadIdx.x != 9) value = __shfl_xor_sync(0xffffffffu, value, 1);
       out[threadIdx.x] = value;
     }`,
    "hf_alone",
  );
  const [status, text] = faultOf(entry, 32, [bare.allocate(128)]);
  assert.deepEqual(
    [status, text],
    [launchFailed, "hf_alone: threads of a warp wait for others that never arrive"],
  );
});

test("a misaligned vector is reported with the line of its cast", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_vector(const float* in, float* out) {
       const float4 four = reinterpret_cast<const float4*>(in)[0];
       out[0] = four.x + four.w;
     }`,
    "hf_vector",
  );
  const memory = bare.put(new Float32Array([1, 2, 3, 4, 5]));
  bare.launch(entry, 1, 1, [memory, memory]);
  assert.equal(bare.cuda.driver.status.cuStreamSynchronize(0), 0);
  const [status, text] = faultOf(entry, 1, [memory + 4, memory]);
  assert.equal(status, misaligned);
  assert.equal(text, "hf_vector: a pointer to a misaligned address in line 2, block 0, thread 0");
});

test("a misaligned pointer among the arguments is reported", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_first(const float* in, float* out) { out[0] = in[0]; }`,
    "hf_first",
  );
  const memory = bare.put(new Float32Array([1, 2]));
  assert.deepEqual(faultOf(entry, 1, [memory + 2, memory + 4]), [
    misaligned,
    "hf_first: parameter 0 is a pointer to a misaligned address",
  ]);
});

test("an access to unallocated memory is an illegal address, and the process continues", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_far(float* out, unsigned index) { out[index] = 1.0f; }`,
    "hf_far",
  );
  const memory = bare.allocate(4);
  const [status, text] = faultOf(entry, 1, [memory, { u32: 16 * 1024 }]);
  assert.equal(status, illegalAddress);
  assert.match(text, /^hf_far: an access at 0x[0-9a-f]+, block 0, thread 0$/);
  emulator.reset();
  assert.equal(faultOf(entry, 1, [4096, { u32: 0 }])[0], illegalAddress);
  emulator.reset();
  bare.launch(entry, 1, 1, [memory, { u32: 0 }]);
  assert.deepEqual([...bare.read(memory, new Float32Array(1))], [1]);
});

test("WebAssembly still handles its own faults, before and after a kernel's", { skip }, () => {
  // (func (export "f") (param i32) (result i32) (i32.load (local.get 0))), with one page of memory
  const code = "0061736d0100000001060160017f017f030201000503010001070501016600000a0901070020002802000b";
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(code, "hex")), {});
  const load = exports["f"] as (address: number) => number;
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_far(float* out, unsigned index) { out[index] = 1.0f; }`,
    "hf_far",
  );
  assert.equal(load(0), 0);
  for (let round = 0; round < 2; round++) {
    assert.throws(() => load(1_000_000), WebAssembly.RuntimeError);
    assert.equal(faultOf(entry, 1, [bare.allocate(4), { u32: 16 * 1024 }])[0], illegalAddress);
    emulator.reset();
  }
});

test("an index outside a shared array is reported with its line", { skip }, () => {
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(4) hf_outside(float* out, unsigned index) {
       __shared__ float kept[4];
       kept[index] = 2.0f;
       out[0] = kept[0];
     }`,
    "hf_outside",
  );
  const [status, text] = faultOf(entry, 4, [bare.allocate(4), { u32: 4 }]);
  assert.equal(status, illegalAddress);
  assert.match(text, /^hf_outside: an index outside its array in line 3/);
});

test("a launch without blocks, with too many threads, or of a dead function is rejected", { skip }, () => {
  const entry = bare.load(`extern "C" __global__ void __launch_bounds__(64) hf_none() {}`, "hf_none");
  assert.equal(bare.tryLaunch(entry, 0, 64, []), 1);
  assert.equal(bare.tryLaunch(entry, 1, 65, []), 1);
  assert.equal(bare.tryLaunch(entry, 1, 64, []), 0);
  assert.equal(bare.tryLaunch(12345, 1, 64, []), 400);
});

test("arguments and memory are those at the launch, also for deferred work", { skip }, () => {
  emulator.set("deferred", 1);
  const entry = bare.load(
    `extern "C" __global__ void __launch_bounds__(1) hf_note(unsigned* out, unsigned value) { out[0] = out[0] * 10 + value; }`,
    "hf_note",
  );
  const [first, second] = [bare.stream(), bare.stream()];
  const out = bare.put(new Uint32Array(1));
  const event = bare.event();
  const { driver } = bare.cuda;
  bare.launch(entry, 1, 1, [out, { u32: 1 }], first);
  driver.cuEventRecord(event, first);
  driver.cuStreamWaitEvent(second, event, 0);
  bare.launch(entry, 1, 1, [out, { u32: 2 }], second);
  assert.equal(driver.status.cuEventQuery(event), 600);
  assert.equal(driver.status.cuEventQuery(event), 0);
  driver.cuStreamSynchronize(second);
  assert.deepEqual([...bare.read(out, new Uint32Array(1))], [12]);
});
