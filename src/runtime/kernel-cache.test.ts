/** The loaded kernels of a runtime: which sources the driver compiles ahead, and which it loads. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { basicKernels, type Driver, type KernelSource, openCpuDriver } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { runAll } from "../units/index.js";
import { CaptureStateMachine } from "./capture/capture-state.js";
import { KernelCache } from "./kernel-cache.js";

const { fill, add, scale } = basicKernels;

function openCache(compile: (sources: readonly KernelSource[]) => void = () => undefined) {
  const cpu = openCpuDriver({ threads: 1 });
  const calls: string[] = [];
  const namesOf = (sources: readonly KernelSource[]): string => sources.map(({ name }) => name).join(", ");
  const driver: Pick<Driver, "compileKernels" | "loadKernel" | "unloadKernel"> = {
    compileKernels(sources) {
      calls.push(`compile ${namesOf(sources)}`);
      compile(sources);
    },
    loadKernel(source) {
      calls.push(`load ${source.name}`);
      return cpu.loadKernel(source);
    },
    unloadKernel: (kernel) => cpu.unloadKernel(kernel),
  };
  const captureState = new CaptureStateMachine();
  const closing: (() => void)[] = [];
  const cache = new KernelCache({ driver: driver as Driver, captureState, closing });
  return { cache, calls, close: () => runAll([...closing.reverse(), () => cpu.close()]) };
}

test("kernels that are not loaded yet are compiled in one call, and then loaded", () => {
  const { cache, calls, close } = openCache();
  cache.load(fill);
  cache.loadAll([fill, add, { ...add }, scale]);
  assert.deepEqual(calls, ["load fill", "compile add, scale", "load add", "load scale"]);
  cache.loadAll([scale, add]);
  cache.loadAll([]);
  assert.equal(cache.load({ ...add }), cache.load(add));
  assert.equal(calls.length, 4);
  close();
});

test("if one does not compile, none is loaded", () => {
  const { cache, calls, close } = openCache(() => {
    throw new HoldfastError("KERNEL_FAILED", "add is wrong");
  });
  assert.throws(() => cache.loadAll([fill, add]), { code: "KERNEL_FAILED" });
  assert.deepEqual(calls, ["compile fill, add"]);
  close();
});
