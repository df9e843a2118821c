/** Opens a runtime's components in order; if one fails, closes the earlier ones again. */

import {
  type Blas,
  type BlasSearch,
  type DeviceInfo,
  type Driver,
  findBlas,
  hasMemory64,
  interceptCalls,
  openBlas,
  openCpuDriver,
  openCudaDriver,
  type RejectedBlas,
  readHostMemory,
  type Stream,
} from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import {
  alignUp,
  type Bytes,
  bytes,
  type Clock,
  formatBytes,
  GiB,
  KiB,
  MiB,
  runAll,
  systemClock,
} from "../units/index.js";
import { CaptureStateMachine } from "./capture/capture-state.js";
import { Work } from "./capture/work.js";
import { Arena } from "./memory/arena.js";
import { Budget } from "./memory/budget.js";
import type { OutOfMemory } from "./memory/diagnose-oom.js";
import { chooseLimit, readFreeMemory } from "./memory/free-memory.js";
import { PersistentMemory } from "./memory/persistent.js";
import { alignment, type Storage } from "./memory/storage.js";
import { Phases } from "./observe/phases.js";
import { type Progress, ProgressLog } from "./observe/progress-line.js";
import { Recorder } from "./observe/recorder.js";
import { SharedStatus } from "./observe/shared-status.js";
import { startWatchdog, type Watchdog } from "./observe/watchdog/index.js";
import { watched } from "./observe/watched-driver.js";
import { readSettings, type SettingOptions, type Settings } from "./settings.js";
import { SideUploads } from "./transfer/side-uploads.js";
import { StagingRing } from "./transfer/staging.js";
import { Transfer } from "./transfer/transfer.js";

export interface OpenOptions extends SettingOptions {
  /** Default: "cpu". */
  readonly device?: "cpu" | "cuda";
  /** Index of the GPU, from 0, or a function that chooses it by the number of GPUs that this process sees. */
  readonly index?: number | ((visible: number) => number);
  /** A driver to use instead of the device's. The runtime does not close it. */
  readonly driver?: Driver;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Root of `/proc` and `/sys`. */
  readonly hostRoot?: string;
  readonly clock?: Clock;
  /** Bytes that the arena commits at a time. Default: depends on the device. */
  readonly chunk?: Bytes;
}

export interface Components {
  readonly settings: Settings;
  readonly sharedStatus: SharedStatus;
  readonly recorder: Recorder;
  readonly phases: Phases;
  readonly captureState: CaptureStateMachine;
  readonly driver: Driver;
  readonly device: DeviceInfo;
  readonly blas: Blas | undefined;
  /** Libraries that a search for a BLAS did not take. */
  readonly rejectedBlas: readonly RejectedBlas[];
  readonly stream: Stream;
  readonly budget: Budget;
  readonly persistent: PersistentMemory;
  readonly arena: Arena;
  readonly transfer: Transfer;
  readonly sideUploads: SideUploads;
  readonly work: Work;
  /** Rejects a use of a dead storage of any kind. */
  readonly requireLive: (storage: Storage, use: string) => void;
  /** Called after each driver call that waits for the device. */
  readonly waitListeners: Set<() => void>;
  /** Close actions, in the order of opening. */
  readonly closing: (() => void)[];
}

export interface Listeners {
  readonly log: (line: string) => void;
  readonly onMemoryPressure: (oom?: OutOfMemory) => void;
  /** Displays long work, unless a log does. Default: none. */
  readonly progress?: Progress | undefined;
}

export function openComponents(
  options: OpenOptions,
  { log, onMemoryPressure, progress }: Listeners,
): Components {
  const {
    device: kind = "cpu",
    index = 0,
    driver: suppliedDriver,
    environment,
    hostRoot,
    clock = systemClock,
    chunk,
    ...texts
  } = options;
  const settings = readSettings(texts, environment);
  const sharedStatus = new SharedStatus();
  const recorder = new Recorder({ clock });
  const captureState = new CaptureStateMachine();
  const phases = new Phases({
    sharedStatus,
    recorder,
    clock,
    ...(settings.log === "phases" ? { log, progress: new ProgressLog({ log, clock }) } : { progress }),
  });
  const closing: (() => void)[] = [];
  const waitListeners = new Set<() => void>();

  function openAll(): Components {
    // The watchdog's thread only knows the system's time; with another clock everything would look like a stall.
    const watchdog =
      clock === systemClock ? openWatchdog(settings, sharedStatus, recorder, closing) : undefined;
    const open = (): Driver =>
      kind === "cuda" ? openGpu(settings, index, environment) : openCpu(settings, hostRoot);
    const opened = suppliedDriver ?? open();
    if (!suppliedDriver) closing.push(() => opened.close());
    const driver = watched(opened, sharedStatus, clock, () => {
      for (const listener of waitListeners) listener();
    });
    const described = driver.describe();
    const { blas, rejected: rejectedBlas } = openBlasFor(described, settings, watchdog);
    const device = blas ? { ...described, name: `${described.name} with ${blas.name}` } : described;
    const free = () => readFreeMemory(device, driver, () => readHostMemory(hostRoot));
    const limit = chooseLimit(settings.memory, free());
    const available = () => free().available;
    const budget = new Budget({ ...limit, sharedStatus, recorder, available, onMemoryPressure });

    const stream = driver.createStream({ isHighPriority: true });
    closing.push(() => driver.destroyStream(stream));
    const staging = new StagingRing(driver, budget, settings.staging);
    closing.push(() => staging.close());
    const persistent = new PersistentMemory({ driver, budget, recorder, captureState });
    closing.push(() => persistent.close());
    const shape = { chunk: chunkSize(chunk, device), capacity: arenaCapacity(settings, device, budget) };
    const { poison, verifyUploads: verify } = settings;
    const sideUploads: SideUploads = new SideUploads({
      ...{ driver, stream, isOn: !verify },
      orderStreams: (earlier, later) => work.orderStreams(earlier, later),
    });
    const arena = new Arena({
      // Freed memory is filled with poison after the uploads into it.
      driver: poison
        ? interceptCalls(driver, (call, _, proceed) => {
            if (call === "fill") sideUploads.beforeWork();
            return proceed();
          })
        : driver,
      stream,
      budget,
      sharedStatus,
      recorder,
      captureState,
      ...shape,
      poison,
      onMemoryPressure,
    });
    closing.push(() => arena.close());

    const requireLive = (storage: Storage, use: string): void =>
      storage.kind === "step" ? arena.requireLive(storage, use) : persistent.requireLive(storage, use);
    const streamForUpload = (): Stream => sideUploads.streamForUpload();
    const transfer = new Transfer({
      ...{ driver, stream, streamForUpload, staging, recorder, captureState, requireLive, verify },
    });
    const arenaOwnerOf = (storage: Storage): Storage => arena.arenaOwnerOf(storage);
    const work = new Work({
      driver,
      stream,
      sharedStatus,
      labels: recorder.labels,
      captureState,
      requireLive,
      arenaOwnerOf,
    });
    closing.push(() => sideUploads.close());
    return {
      settings,
      sharedStatus,
      recorder,
      phases,
      captureState,
      driver,
      device,
      blas,
      rejectedBlas,
      stream,
      budget,
      persistent,
      arena,
      transfer,
      sideUploads,
      work,
      requireLive,
      waitListeners,
      closing,
    };
  }

  try {
    return phases.run("init", openAll);
  } catch (error) {
    runAll(closing.reverse());
    throw error;
  }
}

/** Starts the watchdog that the settings ask for, if any, and adds its end to `closing`. */
export function openWatchdog(
  settings: Pick<Settings, "stallAfter" | "reports" | "onStall">,
  sharedStatus: SharedStatus,
  recorder: Recorder,
  closing: (() => void)[],
): Watchdog | undefined {
  const { stallAfter, reports, onStall } = settings;
  if (stallAfter === "off") return undefined;
  const { labels } = recorder;
  const watchdog = startWatchdog({
    sharedStatus,
    labels,
    recorder,
    stallAfterMs: stallAfter,
    reportDir: reports,
    onStall,
  });
  closing.push(() => watchdog.close());
  return watchdog;
}

function openCpu({ threads, memory }: Settings, hostRoot: string | undefined): Driver {
  const isLarge = memory !== "auto" && memory > 4 * GiB;
  if (isLarge && !hasMemory64()) throw noMemory64(memory);
  return openCpuDriver({
    ...(threads !== "auto" && { threads }),
    ...(isLarge && { maximumBytes: alignUp(memory, 64 * KiB) }),
    ...(hostRoot !== undefined && { hostRoot }),
  });
}

function noMemory64(memory: Bytes): HoldfastError {
  const message =
    `HOLDFAST_MEMORY asks for ${formatBytes(memory)}, but the CPU has at most 4 GiB in Node.js ${process.versions.node}, which has no 64-bit ` +
    "WebAssembly memory. Use Node.js 24 or later, or Node.js 22 with --experimental-wasm-memory64, or set HOLDFAST_MEMORY to 4GiB or less.";
  return new HoldfastError("OUT_OF_BUDGET", message, { numbers: { asked: memory, available: 4 * GiB } });
}

function openBlasFor(
  { memory, parallelism }: DeviceInfo,
  { blas }: Settings,
  watchdog: Watchdog | undefined,
): BlasSearch {
  if (memory !== "host" || blas === "off") return { blas: undefined, rejected: [] };
  // At a fork OpenBLAS ends its threads. If another thread forks during a product, the product waits for them for ever.
  watchdog?.waitForFork();
  return blas === "auto" ? findBlas(parallelism) : { blas: openBlas(blas, parallelism), rejected: [] };
}

function openGpu(
  { cache, cudaPath, threads }: Settings,
  index: number | ((visible: number) => number),
  environment: OpenOptions["environment"] = process.env,
): Driver {
  const folder = cudaPath === "auto" ? undefined : cudaPath;
  return openCudaDriver({
    index,
    cacheFolder: cache,
    ...(threads !== "auto" && { threads }),
    environment: { ...environment, HOLDFAST_CUDA_PATH: folder },
  });
}

function arenaCapacity({ arena }: Settings, device: DeviceInfo, budget: Budget): Bytes {
  const half = Math.floor(device.addressSpace / 2);
  // If the arena is allocated whole, its unused memory is lost to everything else, so half is left free.
  const share = device.canCommitInParts ? budget.limit : Math.floor(budget.left / 2);
  const capacity = arena === "auto" ? bytes(Math.min(share, half)) : arena;
  if (capacity > budget.limit) {
    throw new HoldfastError(
      "BAD_SETTING",
      `An arena of ${formatBytes(capacity)} exceeds the whole budget of ${formatBytes(budget.limit)}. ` +
        "Lower HOLDFAST_ARENA or raise HOLDFAST_MEMORY.",
      { numbers: { capacity, limit: budget.limit } },
    );
  }
  if (capacity < alignment) {
    throw new HoldfastError(
      "BAD_SETTING",
      `An arena of ${formatBytes(capacity)} is too small for one storage, which takes ${formatBytes(alignment)} or more. ` +
        "Raise HOLDFAST_ARENA.",
      { numbers: { capacity, alignment } },
    );
  }
  return capacity;
}

/** On a GPU, step memory is large, and a commit takes 0.1 ms for any size. On the CPU, chunks save growths of the WebAssembly memory. */
function chunkSize(requested: Bytes | undefined, { memory }: DeviceInfo): Bytes | undefined {
  if (requested === undefined) return memory === "host" ? bytes(4 * MiB) : undefined;
  if (Number.isSafeInteger(requested) && requested > 0) return requested;
  throw new HoldfastError(
    "BAD_SETTING",
    `Option chunk is ${requested}; pass a whole number of bytes above 0.`,
    { numbers: { chunk: requested } },
  );
}
