/** The doctor's report about GPUs, on the emulator. */

import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import { type Emulator, emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { readHostMemory } from "../../driver/index.js";
import { readSettings, type Watch } from "../../runtime/index.js";
import { GiB, MiB } from "../../units/index.js";
import { type CudaFacts, readCuda } from "./gpus.js";

describe("on the emulator", { skip: emulatorMissing }, () => {
  let emulator: Emulator;
  beforeEach(() => {
    emulator = openEmulator();
    emulator.reset();
  });

  function look(): { readonly facts: CudaFacts; readonly watched: readonly string[] } {
    const watched: string[] = [];
    const watch: Watch = {
      run(label, work) {
        watched.push(label);
        return work();
      },
      close: () => undefined,
    };
    const environment = { HOLDFAST_CUDA_PATH: emulator.folder, HOLDFAST_CACHE: "off" };
    return { facts: readCuda(readSettings({}, environment), environment, watch), watched };
  }

  test("a discrete GPU is reported with its libraries, free memory and default budget, and the watchdog guards each query", () => {
    emulator.set("totalMemory", 8 * GiB);
    emulator.set("foreignMemory", 3 * GiB);
    emulator.set("devices", 2);
    const { facts, watched } = look();
    assert.equal(facts.problem, null);
    assert.equal(facts.kernelCache, "off");
    for (const library of facts.libraries) {
      assert.ok("path" in library && library.path.startsWith(emulator.folder), library.library);
      assert.match(library.version, /^13\.\d+(\.\d+)?$/);
    }
    const [gpu] = facts.gpus;
    assert.equal(facts.gpus.length, 2);
    assert.equal(gpu?.computeCapability, "9.0");
    assert.equal(gpu?.memory, "discrete");
    assert.deepEqual(gpu?.opened, {
      freeBytes: 5 * GiB,
      budgetBytes: 5 * GiB - 512 * MiB,
      reason: "the card's free memory, 5 GiB, less 512 MiB",
      allocation: "virtual",
    });
    assert.deepEqual(watched, ["CUDA's libraries", "a GPU's memory", "a GPU's memory"]);
    assert.equal(emulator.get("usedMemory"), 0);
  });

  test("a unified-memory machine without the virtual memory API has the host's free memory and plain allocation", () => {
    emulator.set("integrated", 1);
    emulator.set("virtualMemory", 0);
    const [gpu] = look().facts.gpus;
    assert.equal(gpu?.memory, "unified");
    assert.ok(gpu && "freeBytes" in gpu.opened);
    assert.equal(gpu.opened.allocation, "plain");
    const { available } = readHostMemory();
    assert.ok(Math.abs(gpu.opened.freeBytes - available) < GiB, `${gpu.opened.freeBytes} for ${available}`);
    assert.match(gpu.opened.reason, /^the host's MemAvailable, .*, less [\d.]+ GiB$/);
  });

  test("a GPU that is too old is reported with the reason", () => {
    emulator.set("computeMajor", 7);
    const [gpu] = look().facts.gpus;
    assert.ok(gpu && "problem" in gpu.opened);
    assert.match(gpu.opened.problem, /^NO_CUDA: GPU 0, .* has compute capability 7\.0; Holdfast needs 8\.0/);
  });

  test("a driver without a GPU, or without an answer, is reported", () => {
    emulator.set("devices", 0);
    assert.match(look().facts.problem ?? "", /CUDA_ERROR_NO_DEVICE .* CUDA_VISIBLE_DEVICES may hide them/);
    emulator.reset();
    emulator.fail("cuInit", 999);
    const { facts } = look();
    assert.deepEqual(facts.gpus, []);
    assert.match(facts.problem ?? "", /cuInit.* failed: CUDA_ERROR_UNKNOWN/);
  });
});
