/** How tests control the emulator: injected failures of calls, counts, settings, and the state before cuInit. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test, { afterEach } from "node:test";
import {
  cublasLtFunctions,
  cudaFunctions,
  nvrtcFunctions,
  nvtxFunctions,
} from "../../src/driver/cuda/bindings.js";
import { cudaStatus } from "../../src/driver/cuda/constants.js";
import { loadKoffi } from "../../src/driver/foreign-functions.js";
import { BareCuda } from "../support/bare-cuda.js";
import { type EmulatorSetting, emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);

afterEach(() => {
  if (!skip) emulator.reset();
});

test("every function that Holdfast binds exists", { skip }, () => {
  const tables = {
    "libcuda.so.1": cudaFunctions,
    "libnvrtc.so.13": nvrtcFunctions,
    "libcublasLt.so.13": cublasLtFunctions,
    "libnvtx3interop.so.1": nvtxFunctions,
  };
  for (const [name, functions] of Object.entries(tables)) {
    const library = loadKoffi().load(`${emulator.folder}/${name}`);
    for (const symbol of Object.keys(functions)) {
      assert.doesNotThrow(() => library.func(symbol, "int", []), `${symbol} of ${name}`);
    }
  }
});

test("every status that Holdfast distinguishes has its name", { skip }, () => {
  const { driver } = bare.cuda;
  for (const [name, status] of Object.entries(cudaStatus)) {
    assert.equal(driver.status.cuGetErrorName(status, bare.out.address), 0, name);
    assert.equal(loadKoffi().decode.string(bare.out.u64()), `CUDA_${name}`);
    assert.equal(driver.status.cuGetErrorString(status, bare.out.address), 0, name);
  }
  assert.equal(driver.status.cuGetErrorName(12345, bare.out.address), 1);
});

test("an injected failure occurs after the requested number of calls, the requested number of times", {
  skip,
}, () => {
  const ask = () => bare.cuda.driver.status.cuMemGetInfo_v2(bare.out.address, bare.out.address + 8);
  emulator.fail("cuMemGetInfo", 46, { after: 1, times: 2 });
  assert.deepEqual([ask(), ask(), ask(), ask()], [0, 46, 46, 0]);
  emulator.fail("cuMemGetInfo_v2", 999);
  assert.deepEqual([ask(), ask()], [999, 999]);
  emulator.reset();
  assert.equal(ask(), 0);
});

test("failures can be injected into the other two libraries too", { skip }, () => {
  emulator.fail("nvrtcCompileProgram", 7, { times: 1 });
  assert.equal(bare.compile("").status, 7);
  emulator.fail("cublasLtCreate", 3, { times: 1 });
  assert.equal(bare.cuda.cublasLt.status.cublasLtCreate(bare.out.address), 3);
});

test("calls are counted under their names without versions", { skip }, () => {
  const memory = bare.allocate(16);
  bare.cuda.driver.cuMemFree_v2(memory);
  assert.deepEqual(["cuMemAlloc", "cuMemFree_v2", "cuMemMap"].map(emulator.calls), [1, 1, 0]);
});

test("an unknown setting is an error", { skip }, () => {
  assert.throws(() => emulator.set("colour" as EmulatorSetting, 1), /no setting "colour"/);
});

test("a sticky error is the answer of all calls, except those that need no context", { skip }, () => {
  emulator.set("stickyError", 700);
  const { status } = bare.cuda.driver;
  assert.equal(status.cuStreamSynchronize(0), 700);
  assert.equal(status.cuMemAlloc_v2(bare.out.address, 16), 700);
  assert.equal(status.cuDriverGetVersion(bare.out.address), 0);
  assert.equal(status.cuDeviceGetAttribute(bare.out.address, 16, 0), 0);
});

/** The answers of a fresh process, before any other call. */
function answersOf(calls: string, settings: string): number[] {
  const code = `
    const koffi = require(${JSON.stringify(import.meta.resolve("koffi").replace("file://", ""))});
    const library = koffi.load(${JSON.stringify(`${emulator.folder}/libcuda.so.1`)});
    const call = (name, types, ...values) => library.func(name, "int", types)(...values);
    console.log(JSON.stringify([${calls}]));`;
  const env = { ...process.env, EMULATOR_GPU: settings };
  return JSON.parse(execFileSync(process.execPath, ["-e", code], { env, encoding: "utf8" })) as number[];
}

test("nothing works before cuInit, and cuInit fails without a device", { skip }, () => {
  const memory = `call("cuMemAlloc_v2", ["void *", "size_t"], null, 16)`;
  const init = `call("cuInit", ["uint"], 0)`;
  assert.deepEqual(answersOf([memory, init, memory].join(), ""), [3, 0, 201]);
  assert.deepEqual(answersOf([init, memory].join(), "devices=0"), [100, 3]);
});
