/**
 * cuda: an NVIDIA GPU as a device, through the driver API, NVRTC and cuBLASLt. Nothing needs a build step, and no
 * library is loaded before a GPU is opened.
 */

export { basicKernelCode } from "./basic-kernels.js";
export type { Signatures } from "./bindings.js";
export { type Calls, openCalls } from "./calls.js";
export { defaultCacheFolder } from "./cubin-cache.js";
export { type CudaDescription, type CudaLibraryInfo, describeCuda } from "./describe.js";
export { type CudaDeviceInfo, listCudaDevices } from "./devices.js";
export { type CudaDriver, type CudaDriverOptions, openCudaDriver } from "./driver.js";
export { NativeBuffer } from "./native-buffer.js";
export { Struct } from "./structs.js";
