/** The doctor: examines the machine, runs training steps on it, and reports the results as they come. */

import type { Driver } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import { readSettings, type Settings, startWatch } from "../../runtime/index.js";
import { Device, type DeviceOptions } from "../../tensor/index.js";
import { type Bytes, type Clock, formatBytes, systemClock } from "../../units/index.js";
import { deadlinesFor, defaultBatch } from "./deadlines.js";
import { type CudaFacts, readCuda } from "./gpus.js";
import { type Environment, type MachineFacts, readMachine } from "./machine.js";
import {
  type DoctorPhase,
  type PhaseListener,
  PhaseLog,
  type PhaseOutput,
  type PhaseResult,
} from "./phase-log.js";
import { type RankFacts, tryRanks } from "./ranks.js";
import { type ModelSizes, runSmokeTest, type StepFigures } from "./smoke-test.js";

export interface DoctorOptions {
  /** Default: "auto", the first usable GPU, else the CPU. */
  readonly device?: "auto" | "cpu" | "cuda";
  readonly index?: number;
  readonly memory?: Bytes;
  readonly precision?: Settings["precision"];
  /** Default: as the environment says. */
  readonly blas?: Settings["blas"];
  /** Default: by device. */
  readonly batch?: number;
  readonly environment?: Environment;
  /** The folder that contains `/proc` and `/sys`. */
  readonly hostRoot?: string;
  /** Replaces the CPU driver, for tests that inject faults. */
  readonly driver?: Driver;
  /** Replaces the trial of MPI and NCCL, which starts processes. */
  readonly tryRanks?: typeof tryRanks;
  /** Smaller sizes, for tests of the doctor itself. */
  readonly rows?: number;
  readonly steps?: number;
  readonly model?: ModelSizes;
  readonly clock?: Clock;
}

/** The device under test. */
export interface DeviceFacts {
  readonly kind: "cpu" | "cuda";
  readonly name: string;
  readonly index: number;
  readonly memory: "discrete" | "unified" | "host";
  readonly precision: Settings["precision"];
  readonly batch: number;
  /** The library for matrix products on the CPU. Null: Holdfast's kernels. */
  readonly blas: { readonly name: string; readonly library: string } | null;
  /** Installed BLAS libraries that are not used, each with the reason. */
  readonly rejectedBlas: readonly string[];
  readonly budgetBytes: number;
  /** The origin of the budget, as text. */
  readonly budgetReason: string;
  /** Why "auto" fell back to the CPU; otherwise null. */
  readonly insteadOfGpu: string | null;
}

export interface DoctorReport {
  readonly passed: boolean;
  readonly elapsedMs: number;
  readonly machine: MachineFacts;
  readonly cuda: CudaFacts;
  readonly ranks: RankFacts;
  /** Null if no device could be opened. */
  readonly device: DeviceFacts | null;
  readonly phases: readonly PhaseResult[];
  /** Null if a phase before the end of the replays failed. */
  readonly step: StepFigures | null;
}

/** Receives results as they come. */
export interface DoctorListener extends PhaseListener {
  examined(machine: MachineFacts, cuda: CudaFacts, ranks: RankFacts): void;
  opened(device: DeviceFacts): void;
  ended(report: DoctorReport): void;
}

const defaultRows = 213_304;
const defaultSteps = 20;
const defaultStallMs = 30_000;

export function examine(options: DoctorOptions, listener: DoctorListener): DoctorReport {
  const { environment = process.env, hostRoot, clock = systemClock } = options;
  const startedMs = clock.nowMs();
  const settings = withWatchdog(readSettings({}, environment));
  const machine = readMachine(environment, hostRoot);
  const watch = startWatch(settings);
  let cuda: CudaFacts;
  try {
    cuda = readCuda(settings, environment, watch);
  } finally {
    watch.close();
  }
  const gpu = cuda.gpus.find(({ index }) => index === (options.index ?? 0))?.index;
  const ranks = (options.tryRanks ?? tryRanks)(settings, environment, gpu);
  listener.examined(machine, cuda, ranks);
  const trial = tryTraining(options, settings, listener);
  const { passed, device, phases, step } = trial;
  const elapsedMs = clock.nowMs() - startedMs;
  const report = { passed, elapsedMs, machine, cuda, ranks, device, phases, step };
  listener.ended(report);
  return report;
}

/** A hang must end the run, so the doctor always runs with the watchdog, even if the environment disables it. */
export function withWatchdog(settings: Settings): Settings {
  const stallAfter = settings.stallAfter === "off" ? defaultStallMs : settings.stallAfter;
  return { ...settings, stallAfter, onStall: "end" };
}

function tryTraining(
  options: DoctorOptions,
  settings: Settings,
  listener: DoctorListener,
): Pick<DoctorReport, "passed" | "device" | "phases" | "step"> {
  const { clock = systemClock, rows = defaultRows, steps = defaultSteps, model = {} } = options;
  let kind: "cpu" | "cuda" = options.device === "cpu" ? "cpu" : "cuda";
  const batchSize = (): number => options.batch ?? defaultBatch[kind];
  const deadlineOf = (name: DoctorPhase): number => deadlinesFor(kind, batchSize())[name];
  const log = new PhaseLog({ clock, deadlineOf, listener });
  let [facts, step]: [DeviceFacts | null, StepFigures | null] = [null, null];
  let device: Device | undefined;
  try {
    const opened = log.run("open", () => open(options, settings));
    device = opened.device;
    kind = device.name;
    facts = describeDevice(opened, options, batchSize());
    listener.opened(facts);
    step = runSmokeTest(device, { rows, batch: batchSize(), steps, model }, log);
    log.run("close", () => close(opened.device));
  } catch (error) {
    if (log.results.at(-1)?.outcome !== "failed") throw error;
    log.skipRest();
    closeAfterFailure(device);
  }
  return { passed: log.hasPassed, device: facts, phases: log.results, step };
}

interface Opened {
  readonly device: Device;
  readonly insteadOfGpu: string | null;
}

function open(options: DoctorOptions, settings: Settings): PhaseOutput<Opened> {
  const { device: wanted = "auto", driver } = options;
  const opened = wanted === "auto" && !driver ? openAny() : { device: openAs(wanted), insteadOfGpu: null };
  const { runtime } = opened.device;
  const { limit } = runtime.budget;
  return {
    value: opened,
    detail: `${runtime.device.name}; budget ${formatBytes(limit)} (${budgetReason(opened.device, options)})`,
    figures: { budgetBytes: limit },
  };

  function openAny(): Opened {
    try {
      return { device: openAs("cuda"), insteadOfGpu: null };
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== "NO_CUDA") throw error;
      return { device: openAs("cpu"), insteadOfGpu: error.message };
    }
  }

  function openAs(name: "auto" | "cpu" | "cuda"): Device {
    const { index, memory, precision, blas, environment, hostRoot } = options;
    const { stallAfter, onStall } = settings;
    let isOpen = false;
    const deviceOptions: DeviceOptions = {
      stallAfter,
      onStall,
      // A rejected capture must be an error, not a direct run.
      capture: "on",
      // The report already contains the runtime's start message.
      print: (text) => void (isOpen && process.stderr.write(text)),
      ...(index !== undefined && { index }),
      ...(memory !== undefined && { memory }),
      ...(precision !== undefined && { precision }),
      ...(blas !== undefined && { blas }),
      ...(environment !== undefined && { environment }),
      ...(hostRoot !== undefined && { hostRoot }),
      ...(driver !== undefined && { driver }),
    };
    const device = new Device(name === "cuda" ? "cuda" : "cpu", deviceOptions);
    isOpen = true;
    return device;
  }
}

function describeDevice(
  { device, insteadOfGpu }: Opened,
  options: DoctorOptions,
  batch: number,
): DeviceFacts {
  const { runtime } = device;
  const { kind, name, index, memory } = runtime.device;
  return {
    kind,
    name,
    index,
    memory,
    precision: capabilitiesOf(runtime).multipliesHalfFloats ? runtime.settings.precision : "f32",
    batch,
    blas: runtime.blas ? { name: runtime.blas.name, library: runtime.blas.library } : null,
    rejectedBlas: runtime.rejectedBlas.map(({ library, why }) => `${library} ${why}`),
    budgetBytes: runtime.budget.limit,
    budgetReason: budgetReason(device, options),
    insteadOfGpu,
  };
}

/** A budget from --memory does not come from a setting. */
function budgetReason({ runtime }: Device, { memory }: DoctorOptions): string {
  return memory === undefined ? runtime.budget.reason : "--memory";
}

function close(device: Device): PhaseOutput<void> {
  device.close();
  return { value: undefined, detail: "all memory released" };
}

/** Only the first failure is reported; a device in that state may also fail to close. */
function closeAfterFailure(device: Device | undefined): void {
  try {
    device?.close();
  } catch {
    // The first failure is already reported.
  }
}
