/**
 * The emulator of NVRTC: what it compiles, what it rejects and with which log, and where its results can be
 * loaded.
 */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import { loadKoffi } from "../../src/driver/foreign-functions.js";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);

afterEach(() => {
  if (!skip) emulator.reset();
});

const kernel = (body: string, before = ""): string =>
  `${before}\nextern "C" __global__ void __launch_bounds__(32) hf_test(float* out) {\n${body}\n}\n`;

test("an error is reported with its file and line", { skip }, () => {
  const { status, log } = bare.compile(kernel("out[0] = nothing;"));
  assert.equal(status, 6);
  assert.match(log, /kernel\.cu:3:\d+: error: ‘nothing’ was not declared/);
});

test("a warning is an error", { skip }, () => {
  assert.match(bare.compile(kernel("int unused = 1;\nout[0] = 1.0f;")).log, /unused variable/);
  assert.match(
    bare.compile(kernel("int i = -1;\nif (i < blockDim.x) out[0] = 1.0f;")).log,
    /different signedness/,
  );
});

test("only the identifiers of the conventions are known", { skip }, () => {
  for (const word of ["__sinf(1.0f)", "atomicAdd(out, 1.0f)", "__ldg(out)", "tex1D(out)", "INFINITY"]) {
    assert.equal(bare.compile(kernel(`out[0] = ${word};`)).status, 6, word);
  }
  assert.equal(
    bare.compile(`#include <stdio.h>
${kernel("out[0] = 1.0f;")}`).status,
    6,
  );
});

test("a C-style cast to a pointer, whose alignment nothing would check, is rejected with its line", {
  skip,
}, () => {
  for (const cast of ["(float4*)out", "*(const float4*)(out + 1)", "(Lanes<float> const*)&out"]) {
    const { status, log } = bare.compile(kernel(`\n*out = ${cast};`));
    assert.equal(status, 6, cast);
    assert.equal(log, "kernel.cu:4: error: use reinterpret_cast, which checks the pointer's alignment");
  }
  const code = kernel(
    "out[0] = isSet(out) ? (float)sizeof(float*) : 2.0f * (threadIdx.x);",
    "static bool isSet(const float*) { return true; }",
  );
  assert.equal(bare.compile(code).status, 0);
});

test("options that NVRTC does not have, or that loosen arithmetic, are rejected", { skip }, () => {
  const code = kernel("out[0] = 1.0f;");
  for (const option of ["--use_fast_math", "--ftz=true", "--no-such-option", "--gpu-architecture=sm_20"]) {
    assert.equal(bare.compile(code, [option]).status, 5, option);
  }
});

test("a virtual architecture gives no machine code", { skip }, () => {
  const { status, cubin } = bare.compile(kernel("out[0] = 1.0f;"), ["--gpu-architecture=compute_90"]);
  assert.deepEqual([status, cubin.length], [0, 0]);
});

test("more shared memory than a block has is rejected", { skip }, () => {
  const code = (floats: number) =>
    kernel(`__shared__ float many[${floats}];\nmany[threadIdx.x] = 1.0f;\nout[0] = many[0];`);
  assert.equal(bare.compile(code(12 * 1024)).status, 0);
  const { status, log } = bare.compile(code(12 * 1024 + 1));
  assert.equal(status, 6);
  assert.match(log, /uses too much shared data \(49156 bytes, 49152 max\)/);
});

test("several kernels of one source are found, whatever its comments say", { skip }, () => {
  const code = `
    // extern "C" __global__ void hf_not(int* out) {}
    /* __global__ void neither() */
    extern "C" __global__ void
    __launch_bounds__(4 * (8 + 8), 2)
    hf_first(float* out) { out[0] = 1.0f; }
    extern "C" __global__ void hf_second() {}`;
  const { status, log, cubin } = bare.compile(code);
  assert.equal(status, 0, log);
  const module = bare.loadModule(cubin);
  const { driver } = bare.cuda;
  const first = bare.make((to) => driver.cuModuleGetFunction(to, module, "hf_first"));
  driver.cuFuncGetAttribute(bare.out.address, 0, first);
  assert.equal(bare.out.i32(), 64);
  driver.cuModuleGetFunction(bare.out.address, module, "hf_second");
  assert.equal(driver.status.cuModuleGetFunction(bare.out.address, module, "hf_not"), 500);
  driver.cuModuleUnload(module);
  assert.equal(driver.status.cuModuleGetFunction(bare.out.address, module, "hf_second"), 400);
});

test("machine code of another architecture, and garbage, can't be loaded", {
  skip,
}, () => {
  const code = kernel("out[0] = 1.0f;");
  const load = (cubin: Uint8Array) =>
    bare.cuda.driver.status.cuModuleLoadData(bare.out.address, Number(loadKoffi().address(cubin)));
  assert.equal(load(bare.compile(code, ["--gpu-architecture=sm_80"]).cubin), 209);
  assert.equal(load(bare.compile(code, ["--gpu-architecture=sm_90a"]).cubin), 0);
  assert.equal(load(new Uint8Array(256)), 200);
  emulator.set("computeMajor", 12);
  emulator.set("computeMinor", 1);
  assert.equal(load(bare.compile(code, ["--gpu-architecture=sm_120"]).cubin), 0);
  // Code with the instructions of one architecture runs on that one alone.
  assert.equal(load(bare.compile(code, ["--gpu-architecture=sm_120a"]).cubin), 209);
  assert.equal(load(bare.compile(code, ["--gpu-architecture=sm_121a"]).cubin), 0);
});
