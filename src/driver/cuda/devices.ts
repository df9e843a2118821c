/** Lists and opens the GPUs of this machine. */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes } from "../../units/index.js";
import { type Cuda, openCuda } from "./calls.js";
import { deviceAttribute } from "./constants.js";
import { NativeBuffer } from "./native-buffer.js";

/** The oldest compute capability that kernels are generated for. */
const minCapability = 8;

/** A GPU, as `listCudaDevices` describes it. */
export interface CudaDeviceInfo {
  /** The index that `device("cuda", { index })` takes. */
  readonly index: number;
  readonly name: string;
  readonly computeCapability: string;
  /** True if it shares one memory pool with the host. */
  readonly isIntegrated: boolean;
  readonly multiprocessors: number;
  /** Shared memory that a block may use, with opt-in. */
  readonly sharedBytesPerBlock: number;
  readonly totalBytes: Bytes;
  /** As `nvidia-smi -L` shows it. */
  readonly uuid: string;
  /** The newest CUDA that the installed driver supports: 13000 is 13.0. */
  readonly driverVersion: number;
}

/** Graphs preserve programmatic dependent launch since CUDA 12.3; GPUs support it since Hopper. */
export function supportsPdl({ computeCapability, driverVersion }: CudaDeviceInfo): boolean {
  return Number.parseInt(computeCapability, 10) >= 9 && driverVersion >= 12030;
}

export interface OpenedDevice {
  readonly cuda: Cuda;
  readonly info: CudaDeviceInfo;
  /** CUDA's device handle. */
  readonly ordinal: number;
  /** Makes its context current on this thread; calls CUDA only if another context is current. */
  use(): void;
  release(): void;
}

/** This thread's current context, as far as Holdfast has set it. */
let currentContext = 0;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Lists the GPUs visible to this process, usable or not. Throws NO_CUDA if there is no NVIDIA driver.
 *
 * @example
 * ```ts
 * import { HoldfastError, listCudaDevices } from "holdfast";
 * try {
 *   for (const { index, name } of listCudaDevices()) console.error(`${index}: ${name}`);
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.error(error.message); // says what is missing, and which package has it
 * }
 * ```
 */
export function listCudaDevices(environment: Environment = process.env): readonly CudaDeviceInfo[] {
  const cuda = openCuda({ environment });
  cuda.driver.cuInit(0);
  const out = new NativeBuffer();
  try {
    cuda.driver.cuDeviceGetCount(out.address);
    return Array.from({ length: out.i32() }, (_, index) => describe(cuda, index).info);
  } finally {
    out.free();
  }
}

export function openDevice(
  requested: number | ((visible: number) => number),
  environment: Environment,
): OpenedDevice {
  const cuda = openCuda({ environment });
  cuda.driver.cuInit(0);
  const out = new NativeBuffer();
  try {
    cuda.driver.cuDeviceGetCount(out.address);
    const count = out.i32();
    const index = typeof requested === "function" ? requested(count) : requested;
    if (!Number.isInteger(index) || index < 0 || index >= count) throw noSuchDevice(index, count);
    const { info, ordinal } = describe(cuda, index);
    if (Number.parseInt(info.computeCapability, 10) < minCapability) throw tooOld(info);
    cuda.driver.cuDevicePrimaryCtxRetain(out.address, ordinal);
    const context = out.u64();
    const use = (): void => {
      if (currentContext === context) return;
      cuda.driver.cuCtxSetCurrent(context);
      currentContext = context;
    };
    const release = (): void => {
      if (currentContext === context) currentContext = 0;
      cuda.driver.cuDevicePrimaryCtxRelease_v2(ordinal);
    };
    try {
      use();
    } catch (error) {
      release();
      throw error;
    }
    return { cuda, info, ordinal, use, release };
  } finally {
    out.free();
  }
}

function describe(cuda: Cuda, index: number): { info: CudaDeviceInfo; ordinal: number } {
  const { driver } = cuda;
  const out = new NativeBuffer(256);
  try {
    driver.cuDeviceGet(out.address, index);
    const ordinal = out.i32();
    const attribute = (name: keyof typeof deviceAttribute): number => {
      driver.cuDeviceGetAttribute(out.address, deviceAttribute[name], ordinal);
      return out.i32();
    };
    const [major, minor] = [attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")];
    driver.cuDriverGetVersion(out.address);
    const driverVersion = out.i32();
    driver.cuDeviceTotalMem_v2(out.address, ordinal);
    const totalBytes = bytes(out.u64());
    driver.cuDeviceGetUuid_v2(out.address, ordinal);
    const uuid = formatUuid(out.bytes.subarray(0, 16));
    out.bytes.fill(0);
    driver.cuDeviceGetName(out.address, out.bytes.length, ordinal);
    const end = out.bytes.indexOf(0);
    const info: CudaDeviceInfo = {
      index,
      name: new TextDecoder().decode(out.bytes.slice(0, end < 0 ? undefined : end)),
      computeCapability: `${major}.${minor}`,
      isIntegrated: attribute("INTEGRATED") !== 0,
      multiprocessors: attribute("MULTIPROCESSOR_COUNT"),
      sharedBytesPerBlock: attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
      totalBytes,
      uuid,
      driverVersion,
    };
    return { info, ordinal };
  } finally {
    out.free();
  }
}

/** 4, 2, 2, 2 and 6 bytes in hexadecimal. */
function formatUuid(bytes: Uint8Array): string {
  const digits = Buffer.from(bytes).toString("hex");
  return `GPU-${digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")}`;
}

function noSuchDevice(index: number, count: number): HoldfastError {
  const visible = count === 0 ? "none" : count === 1 ? "1 GPU" : `${count} GPUs`;
  return new HoldfastError(
    "NO_CUDA",
    `GPU ${index} does not exist: this process sees ${visible}. GPUs are counted from 0; CUDA_VISIBLE_DEVICES can hide them.`,
    { numbers: { index, count } },
  );
}

function tooOld({ index, name, computeCapability }: CudaDeviceInfo): HoldfastError {
  return new HoldfastError(
    "NO_CUDA",
    `GPU ${index}, ${name}, has compute capability ${computeCapability}; Holdfast needs ${minCapability}.0 or later ` +
      "(Ampere or newer). Use another GPU, or the CPU.",
    { numbers: { index, computeCapability } },
  );
}
