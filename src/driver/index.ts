/**
 * driver: the interface to hardware, with CUDA and the CPU as implementations and the wrappers `strict` and `faulty`.
 */

export { basicKernels } from "./basic-kernels.js";
export {
  type Blas,
  type BlasGemm,
  type BlasSearch,
  blasNoTranspose,
  blasRowMajor,
  blasTransposed,
  blockCount,
  Code,
  type CpuDriver,
  type CpuDriverOptions,
  elementsPerBlock,
  encodeKernel,
  encodeModule,
  findBlas,
  hasMemory64,
  hasRelaxedSimd,
  type KernelModule,
  type Label,
  type LaneOpcode,
  type Local,
  type MathFunction,
  type MemoryOpcode,
  mathFunctions,
  openBlas,
  openCpuDriver,
  type RejectedBlas,
  type StackOpcode,
  type ValueType,
  type WasmFunction,
  type WasmImport,
} from "./cpu/index.js";
export {
  type Calls,
  type CudaDescription,
  type CudaDeviceInfo,
  type CudaDriver,
  type CudaDriverOptions,
  type CudaLibraryInfo,
  defaultCacheFolder,
  describeCuda,
  listCudaDevices,
  NativeBuffer,
  openCalls,
  openCudaDriver,
  type Signatures,
  Struct,
} from "./cuda/index.js";
export {
  type Argument,
  biasAlignment,
  type CaptureMode,
  type CudaCode,
  type DeviceInfo,
  type Driver,
  type DriverCall,
  driverCalls,
  type Event,
  type GemmMatrix,
  type GemmPrecision,
  type Graph,
  type HostFunction,
  type HostMemory,
  type HostSpan,
  isMemory,
  type Kernel,
  type KernelSource,
  type Launch,
  type LibraryGemm,
  type MemoryInfo,
  type MemoryParameter,
  type NodeCount,
  type Parameter,
  type Stream,
  type StreamOptions,
  type TensorMap,
} from "./driver.js";
export { type FaultyOptions, faulty } from "./faulty/index.js";
export { loadKoffi } from "./foreign-functions.js";
export { type HostMemoryInfo, readHostMemory } from "./host-memory.js";
export { type HostThreadsInfo, readHostThreads } from "./host-threads.js";
export { type CallInterceptor, interceptCalls } from "./intercept-calls.js";
export { strict } from "./strict/index.js";
