/** cpu: the CPU as a device. Memory is one WebAssembly memory, a kernel a WASM function, a stream a queue. */

export { basicKernels, blocksFor, elementsPerBlock } from "./basic-kernels.js";
export { type CpuDriver, type CpuDriverOptions, openCpuDriver } from "./driver.js";
export { Code, encodeModule, type Label, type Local, maximumPages, type WasmFunction } from "./wasm.js";
export type { LaneOpcode, MemoryOpcode, PlainOpcode, ValueType } from "./wasm-opcodes.js";
