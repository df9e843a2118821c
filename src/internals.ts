/// <reference types="node" preserve="true" />

/**
 * holdfast/internals: drivers, the runtime and fault injection, for engine builders and tests. These exports may change in
 * any version; programs that train models need only `holdfast`.
 */

export {
  basicKernels,
  blockCount,
  type CpuDriver,
  type CpuDriverOptions,
  type CudaCode,
  type CudaDriver,
  type CudaDriverOptions,
  type Driver,
  type DriverCall,
  driverCalls,
  elementsPerBlock,
  type FaultyOptions,
  faulty,
  type Kernel,
  type KernelSource,
  type Launch,
  type LibraryGemm,
  openCpuDriver,
  openCudaDriver,
  type Stream,
  strict,
} from "./driver/index.js";
export { type ErrorCode, HoldfastError } from "./errors/index.js";
export {
  type Arena,
  type Budget,
  openRuntime,
  type Placement,
  type RecordedEvent,
  type Region,
  type Replayable,
  Runtime,
  SavedSet,
  type Storage,
  type TransferCount,
  type UploadItem,
} from "./runtime/index.js";
export { runtimeOf } from "./tensor/index.js";
export { type Address, type Bytes, bytes, type Span } from "./units/index.js";
