/** `device("cuda")` and `device("auto")` on machines with and without a GPU, and two GPUs under one program. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { afterEach, describe } from "node:test";
import { promisify } from "node:util";
import { type Device, type DeviceOptions, device, tensor } from "holdfast";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { heldOnEmulator } from "./support/emulator-driver.js";
import { repositoryRoot } from "./support/repository.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const options: DeviceOptions = {
  stallAfter: "off",
  environment: {},
  print: () => {},
  cache: "off",
  memory: "64MiB",
  ...(!skip && { cudaPath: emulator.folder }),
};

const sumOn = (on: Device): number => on.step(() => tensor([1, 2, 3.5], { device: on }).sum().item());

describe("a machine with a GPU", { skip }, () => {
  test('gives it to "auto" and to "cuda", and frees everything when it is closed', async () => {
    const before = heldOnEmulator();
    for (const name of ["auto", "cuda"] as const) {
      const opened = await device(name, options);
      assert.deepEqual([opened.name, opened.runtime.device.kind], ["cuda", "cuda"]);
      assert.equal(sumOn(opened), 6.5);
      assert.notDeepEqual(heldOnEmulator(), before);
      opened.close();
      assert.deepEqual(heldOnEmulator(), before);
    }
    const contexts = ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"].map((call) =>
      emulator.calls(call),
    );
    assert.deepEqual(contexts, [2, 2]);
  });

  test('gives the CPU to "cpu", without a call of CUDA', async () => {
    const opened = await device("cpu", options);
    assert.equal(sumOn(opened), 6.5);
    opened.close();
    assert.equal(emulator.calls("cuInit"), 0);
  });

  test("gives another of its GPUs by its number, and an invalid number is an error with the number of GPUs", async () => {
    emulator.set("devices", 2);
    const [first, second] = [await device("cuda", options), await device("cuda", { ...options, index: 1 })];
    assert.deepEqual([first.runtime.device.index, second.runtime.device.index], [0, 1]);
    for (let round = 0; round < 3; round++) assert.deepEqual([sumOn(first), sumOn(second)], [6.5, 6.5]);
    const [a, b] = [tensor([1], { device: first }), tensor([1], { device: second })];
    assert.throws(() => a.add(b), { code: "OTHER_DEVICE" });
    first.close();
    assert.equal(sumOn(second), 6.5);
    second.close();
    await assert.rejects(device("cuda", { ...options, index: 2 }), {
      code: "NO_CUDA",
      message: /GPU 2 does not exist: this process sees 2 GPUs/,
    });
  });

  test("whose opening fails is an error, also where the CPU would do, and nothing stays allocated", async () => {
    const before = heldOnEmulator();
    const calls = [
      "cuStreamCreateWithPriority",
      "cuMemHostAlloc",
      "cuMemGetInfo",
      "cuMemcpyHtoDAsync",
      "cuEventRecord",
    ];
    for (const call of calls) {
      emulator.fail(call, 999, { times: 1 });
      await assert.rejects(device("auto", options), {
        code: "DRIVER_FAILED",
        message: new RegExp(`^${call}`),
      });
      assert.deepEqual(heldOnEmulator(), before, call);
      emulator.reset();
    }
  });
});

describe("a machine without a usable GPU", { skip }, () => {
  const reasons: Record<string, readonly [() => void, RegExp]> = {
    "there is no device": [() => emulator.set("devices", 0), /CUDA_ERROR_NO_DEVICE/],
    "the device is too old": [
      () => emulator.set("computeMajor", 7),
      /compute capability 7\.0; Holdfast needs 8\.0/,
    ],
    "the driver is the toolkit's stub": [
      () => emulator.fail("cuInit", 34),
      /CUDA_ERROR_STUB_LIBRARY.*NVIDIA driver/,
    ],
  };
  for (const [why, [inject, message]] of Object.entries(reasons)) {
    test(`because ${why}: "auto" is the CPU, and "cuda" an error that says so`, async () => {
      inject();
      const opened = await device("auto", options);
      assert.equal(opened.name, "cpu");
      assert.equal(sumOn(opened), 6.5);
      opened.close();
      await assert.rejects(device("cuda", options), { code: "NO_CUDA", message });
    });
  }
});

/** In its own process: a process that has loaded a libcuda finds it again under every name. */
test('without a driver "auto" is the CPU, and "cuda" names the package to install', async (t) => {
  const empty = mkdtempSync(join(tmpdir(), "holdfast-no-cuda-"));
  const script = `
    import { device } from "holdfast";
    const options = { stallAfter: "off", print: () => {}, cudaPath: ${JSON.stringify(empty)} };
    const opened = await device("auto", options);
    const told = { name: opened.name, code: "", message: "" };
    opened.close();
    await device("cuda", options).catch(({ code, message }) => Object.assign(told, { code, message }));
    console.log(JSON.stringify(told));
    process.exit();`;
  try {
    const environment = { PATH: process.env["PATH"], HOME: empty };
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ["--input-type=module", "--eval", script],
      {
        cwd: repositoryRoot,
        env: environment,
      },
    );
    const { name, code, message } = JSON.parse(stdout) as Record<"name" | "code" | "message", string>;
    if (name === "cuda") {
      t.skip("this machine has a GPU and its driver");
      return;
    }
    assert.deepEqual([name, code], ["cpu", "NO_CUDA"]);
    // A machine may have the library and no device.
    if (!/CUDA_ERROR/.test(message)) assert.match(message, /libcuda\.so\.1.*Install the NVIDIA driver/s);
  } finally {
    rmSync(empty, { recursive: true });
  }
});
