/**
 * cpu: the CPU as a device. Device memory is one WebAssembly memory, a kernel is a WASM function, a stream is a queue.
 */

export { basicKernels, blockCount, elementsPerBlock } from "./basic-kernels.js";
export { type Blas, type BlasSearch, findBlas, openBlas, type RejectedBlas } from "./blas.js";
export { type BlasGemm, blasNoTranspose, blasRowMajor, blasTransposed } from "./blas-gemm.js";
export { type CpuDriver, type CpuDriverOptions, openCpuDriver } from "./driver.js";
export { hasMemory64 } from "./has-memory64.js";
export { encodeKernel, type KernelModule } from "./kernel-module.js";
export { type MathFunction, mathFunctions } from "./math-functions.js";
export { hasRelaxedSimd } from "./relaxed-simd.js";
export {
  Code,
  encodeModule,
  type Label,
  type Local,
  maximumPages,
  type WasmFunction,
  type WasmImport,
} from "./wasm.js";
export type { LaneOpcode, MemoryOpcode, StackOpcode, ValueType } from "./wasm-opcodes.js";
