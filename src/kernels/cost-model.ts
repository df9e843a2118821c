/**
 * The resources of a streaming multiprocessor (SM), and how launches fill a GPU with waves of CTAs. Kernel configs derive their limits
 * from these. Thresholds that no model gives are measured. They are defined next to their use, with the benchmark that measured them.
 *
 * None of these numbers changes the bits of a reduction: its order follows from the shape alone.
 */

import type { DeviceInfo } from "../driver/index.js";

/** The same on every architecture since Maxwell (CUDA programming guide, "Technical Specifications per Compute Capability"). */
export const warpSize = 32;
export const maxThreadsPerBlock = 1024;
export const registersPerSm = 64 * 1024;
export const registerBytes = 4;
/** The registers that a thread can address: 255. */
export const maxRegisterBytes = 255 * registerBytes;
/** The limit of static shared memory; more needs dynamic shared memory. */
export const staticSharedBytes = 48 * 1024;
/** DRAM and L2 transfers happen in sectors of this size. */
export const sectorBytes = 32;
/** The largest load or store of one thread. */
export const maxVectorBytes = 16;
/** Bytes of a launch's parameters; a parameter has at most eight. */
export const maxParameterBytes = 4096;

/** A launch that waits for its predecessor costs about this much, in a CUDA graph without programmatic dependent launch. */
const launchUs = 2;
/** Device memory traffic of one SM: 19 KB/µs on an A100 80 GB, 25 on an H100, 36 on an H200; a power of two serves all. */
const smBytesPerUs = 32 * 1024;
/** The share of the memory bandwidth that elementwise kernels reach: 0.88 to 0.93 for activations on an H200. */
const reachedBandwidth = 0.9;

/** The time of an elementwise kernel that moves these bytes, without its launch. */
export function trafficUs({ parallelism }: Pick<DeviceInfo, "parallelism">, bytes: number): number {
  return bytes / (reachedBandwidth * smBytesPerUs * parallelism);
}

/** The bytes that one SM moves in the time of a launch. */
export const launchBytes = launchUs * smBytesPerUs;
/** The latency of device memory under load, and so the bytes that an SM has to have in flight for its share of the bandwidth. */
export const memoryLatencyUs = 1;
export const bytesInFlightPerSm = memoryLatencyUs * smBytesPerUs;

/** Each of them issues an instruction of one of its warps per cycle. */
export const schedulersPerSm = 4;
/** Cycles of an SM per microsecond under load: 1500 to 1900 on an H200. */
export const smCyclesPerUs = 1700;
/** Cycles between two instructions of a warp, if the second one needs the result of the first. */
export const issueCyclesPerWarp = 4;

/** Shared memory of a CTA with opt-in, by compute capability: for tests, and for kernels of one architecture. */
const optInSharedBytes: ReadonlyMap<string, number> = new Map([
  ["8.0", 163 * 1024],
  ["8.6", 99 * 1024],
  ["8.7", 163 * 1024],
  ["8.9", 99 * 1024],
  ["9.0", 227 * 1024],
  ["10.0", 227 * 1024],
  ["10.3", 227 * 1024],
  ["12.0", 99 * 1024],
  ["12.1", 99 * 1024],
]);

/** The facts of a device that limit the shared memory of its blocks. */
export type SharedMemoryFacts = Pick<DeviceInfo, "computeCapability" | "sharedBytesPerBlock">;

/** The limit of shared memory per CTA, as the driver reports it. Without a driver: by compute capability, or the static limit. */
export function maxSharedBytesPerBlock({
  computeCapability = "",
  sharedBytesPerBlock = optInSharedBytes.get(computeCapability) ?? staticSharedBytes,
}: SharedMemoryFacts): number {
  return sharedBytesPerBlock;
}

/** Shared memory that the system takes from each resident block. */
const reservedSharedBytes = 1024;
/** The compute capabilities whose SMs run 2048 threads at once. */
const capabilitiesOf2048Threads: ReadonlySet<string> = new Set(["8.0", "9.0", "10.0", "10.3"]);

/** The blocks of so many threads that an SM has threads for: 2048 threads in data centres, 1536 on desktops. */
export function residentBlocksOf(
  { computeCapability = "" }: Pick<DeviceInfo, "computeCapability">,
  threads: number,
): number {
  return Math.floor((capabilitiesOf2048Threads.has(computeCapability) ? 2048 : 1536) / threads);
}

/** Dynamic shared memory of a block that leaves enough for as many blocks as the SM has threads for. */
export function residentSharedBytes(device: SharedMemoryFacts, threads: number, staticBytes: number): number {
  const perBlock = (maxSharedBytesPerBlock(device) + reservedSharedBytes) / residentBlocksOf(device, threads);
  return Math.max(0, perBlock - reservedSharedBytes - staticBytes);
}

/** Register bytes per thread, if `blocksPerSm` blocks of `threads` threads are resident on an SM. */
export function registerBytesPerThread(threads: number, blocksPerSm = 1): number {
  return (registersPerSm * registerBytes) / (threads * blocksPerSm);
}

/** Registers of a thread are allocated in units of this size. */
const registerUnit = 8;

/** The threads that an SM has registers for. Each scheduler has a quarter of the registers, for whole warps. */
export function threadsWithRegisters(bytes: number): number {
  const registers = registerUnit * Math.ceil(bytes / registerBytes / registerUnit);
  const warps = Math.floor(registersPerSm / schedulersPerSm / (warpSize * registers));
  return warps * schedulersPerSm * warpSize;
}

/** The number of waves of CTAs, with one CTA resident per SM. */
export function wavesOf(ctas: number, sms: number): number {
  return Math.ceil(ctas / sms);
}

/** Clusters of more than two CTAs leave some SMs idle: an H200 with 132 SMs holds 30 clusters of four at once, and 15 of eight. */
const smShareOfLargeClusters = 10 / 11;

/** The CTAs that run at the same time in clusters of this size, with one CTA per SM. */
export function residentClusterCtas(sms: number, clusterSize: number): number {
  const clusters = Math.floor((sms * (clusterSize > 2 ? smShareOfLargeClusters : 1)) / clusterSize);
  return clusterSize * Math.max(clusters, 1);
}

/** True if there is a CTA for at least this share of the SMs. */
export function fillsSms(ctas: number, sms: number, share: number): boolean {
  return ctas >= share * sms;
}
