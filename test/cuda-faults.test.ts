/**
 * Any call of CUDA's libraries may fail, once, at any moment. The program then gets a HoldfastError, and
 * after it has closed everything, no resource is held.
 */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { Device, HoldfastError, manualSeed, nn, optim } from "holdfast";
import { basicKernels, blockCount, bytes, type Driver } from "holdfast/internals";
import { cublasLtFunctions, cudaFunctions, nvrtcFunctions } from "../src/driver/cuda/bindings.js";
import { captureStep } from "../src/tensor/index.js";
import { MiB } from "../src/units/index.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { type Held, heldOnEmulator, openEmulatorDriver } from "./support/emulator-driver.js";
import { testEnvironment } from "./support/test-device.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const functions = { ...cudaFunctions, ...nvrtcFunctions, ...cublasLtFunctions };

/**
 * A mix of everything: kernels, GEMMs, copies in both directions, streams, a captured training step, a
 * released region.
 */
function useEverything(device: Device): void {
  const { runtime } = device;
  const model = new nn.Linear(4, 3).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
  const x = device.fromHost(Float32Array.from({ length: 8 }, Math.sin), [2, 4], "f32");
  const train = (): void => {
    optimizer.zeroGrad();
    model.forward(x).square().mean().backward();
    optimizer.step();
  };
  device.step(train);
  const side = runtime.createStream();
  runtime.orderStreams(runtime.stream, side);
  runtime.orderStreams(side, runtime.stream);
  const graph = captureStep(device, "train", 8 * MiB, train);
  graph.replay();
  graph.close();
  const region = runtime.persistent.place("data set", "rows", [{ name: "rows", size: 4096 }]);
  const [rows] = region.storages;
  const kernel = runtime.kernel(basicKernels.fill);
  runtime.launch({ op: "fill", kernel, blocks: blockCount(1024), arguments: [rows!, 1, 1024] });
  runtime.read(rows!);
  runtime.persistent.release(region);
  runtime.synchronize();
}

interface Outcome {
  readonly errors: readonly unknown[];
  readonly calls: ReadonlyMap<string, number>;
  /** The resources that are held in addition to those held before. */
  readonly left: Readonly<Record<string, number>>;
}

/** Resources without a count, by the calls that create and destroy them. */
const pairs = [
  ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"],
  ["nvrtcCreateProgram", "nvrtcDestroyProgram"],
  ["cublasLtCreate", "cublasLtDestroy"],
  ["cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy"],
  ["cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy"],
  ["cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy"],
] as const;

interface Fault {
  readonly call: string;
  /** Successful calls before the one that fails. */
  readonly after: number;
}

function runWith(fault?: Fault, { isClosed = true } = {}): Outcome {
  emulator.reset();
  const before = heldOnEmulator();
  if (fault) emulator.fail(fault.call, 1, { after: fault.after, times: 1 });
  const errors: unknown[] = [];
  const attempt = <T>(act: () => T): T | undefined => {
    try {
      return act();
    } catch (error) {
      errors.push(error);
      return undefined;
    }
  };
  const driver = attempt(() => openEmulatorDriver());
  if (driver) {
    manualSeed(1);
    const opened = attempt(() => openOn(driver));
    if (opened) {
      attempt(() => useEverything(opened));
      if (isClosed) attempt(() => opened.close());
    }
    if (isClosed) attempt(() => driver.close());
  }
  const calls = new Map(Object.keys(functions).map((name) => [name, emulator.calls(name)]));
  const good = (name: string): number => {
    const isStruck = fault !== undefined && sameCall(fault.call, name) && emulator.calls(name) > fault.after;
    return emulator.calls(name) - (isStruck ? 1 : 0);
  };
  const after = heldOnEmulator();
  const figures = Object.entries(after).map(([figure, count]) => [
    figure,
    count - before[figure as keyof Held],
  ]);
  const unbalanced = pairs.map(([make, end]) => [make, good(make) - good(end)]);
  return {
    errors,
    calls,
    left: Object.fromEntries([...figures, ...unbalanced].filter(([, count]) => count !== 0)),
  };
}

const sameCall = (a: string, b: string): boolean => a.replace(/_v\d$/, "") === b.replace(/_v\d$/, "");

function openOn(driver: Driver): Device {
  return new Device("cuda", {
    driver,
    memory: "64MiB",
    arena: "32MiB",
    staging: "1MiB",
    chunk: bytes(4 * MiB),
    capture: "on",
    stallAfter: "off",
    environment: testEnvironment,
    print: () => {},
  });
}

/** Calls that free something: if one fails, the device keeps the resource. */
const rejections: Readonly<Record<string, readonly string[]>> = {
  cuMemFreeHost: ["hostAllocations"],
  cuMemUnmap: ["usedMemory", "reservations"],
  cuMemRelease: ["usedMemory"],
  cuMemAddressFree: ["reservations"],
  cuStreamDestroy: ["streams"],
  cuEventDestroy: ["events"],
  cuModuleUnload: ["modules"],
  cuGraphDestroy: ["graphs"],
  cuGraphExecDestroy: ["executables", "graphs"],
  ...Object.fromEntries(pairs.map(([make, end]) => [end, [make]])),
};

/** The probe of the virtual memory API: if one of these calls fails the first time, memory is plain. */
const probe = new Set([
  ...["cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"],
  ...["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"],
]);

describe("one failing call of CUDA", { skip }, () => {
  const sound = skip ? undefined! : runWith();

  test("the scenario passes without a fault, and frees everything", () => {
    assert.deepEqual(sound.errors, []);
    assert.deepEqual(sound.left, {});
    const used = [...sound.calls].filter(([, count]) => count > 0).map(([name]) => name);
    assert.ok(used.length > 50, `${used.length} functions were called`);
  });

  /** The first or the last call of every function; in the long suites both, and one between them. */
  const faults = skip
    ? []
    : [...sound.calls].flatMap(([call, count], position) => {
        const last = count - 1;
        const indices = effort({
          quick: new Set([position % 2 === 0 ? 0 : last]),
          thorough: new Set([0, Math.floor(count / 2), last]),
        });
        return count === 0 ? [] : [...indices].map((after) => ({ call, after }));
      });

  test(`each of ${faults.length} calls of the scenario may fail: the program gets an error with a code, and nothing is held`, () => {
    const troubles: string[] = [];
    for (const fault of faults) {
      const { errors, left } = runWith(fault);
      const name = `${fault.call} after ${fault.after}`;
      const foreign = errors.find((error) => !(error instanceof HoldfastError));
      if (foreign) troubles.push(`${name}: ${foreign instanceof Error ? foreign.stack : foreign}`);
      if (errors.length === 0 && !(probe.has(fault.call) && fault.after === 0))
        troubles.push(`${name}: no error`);
      const rejected = Object.entries(rejections).find(([call]) => sameCall(call, fault.call))?.[1] ?? [];
      const more = Object.entries(left).filter(([figure]) => !rejected.includes(figure));
      if (more.length > 0) troubles.push(`${name}: left ${JSON.stringify(more)} (${errors[0]})`);
    }
    assert.deepEqual(troubles, []);
  });

  test("red proof: an unclosed resource is found", () => {
    const { left } = runWith(undefined, { isClosed: false });
    assert.ok(Object.keys(left).length > 8, JSON.stringify(left));
  });
});
