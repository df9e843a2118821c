/** Kernels on 64-bit memory: rejected misuse of addresses, and addresses past 4 GiB. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { rejects } from "../../../test/support/rejects.js";
import { bytes, GiB, span } from "../../units/index.js";
import { basicKernels, blockCount } from "./basic-kernels.js";
import { openCpuDriver } from "./driver.js";
import { hasMemory64 } from "./has-memory64.js";
import { encodeKernel } from "./kernel-module.js";
import { type Code, pageBytes } from "./wasm.js";
import { maxWideSpan } from "./widen-addresses.js";

// Before V8 13 (Node 24) a flag enables it, in memories of up to 4 GiB at least.
if (Number.parseInt(process.versions.v8, 10) < 13) setFlagsFromString("--experimental-wasm-memory64");

test("a kernel that loses the high bits of an address is rejected when it is loaded", () => {
  const driver = openCpuDriver({ threads: 1, hasWideAddresses: true });
  const load = (name: string, misuse: (code: Code) => void) => () =>
    driver.loadKernel(
      encodeKernel({
        name,
        parameters: ["inout"],
        body: (code, argument) => {
          code.get(argument(0)).i32(2);
          misuse(code);
          code.op("drop");
        },
      }),
    );
  load("sum", (code) => code.op("i32.add"))();
  rejects(
    "KERNEL_FAILED",
    load("product", (code) => code.op("i32.mul")),
    /computes i32\.mul of an address/,
  );
  driver.close();
});

test("an argument that is longer than a kernel can reach is rejected", () => {
  const driver = openCpuDriver({ threads: 1, hasWideAddresses: true });
  const stream = driver.createStream();
  const kernel = driver.loadKernel(basicKernels.fill);
  const range = driver.reserve(bytes(maxWideSpan + pageBytes));
  driver.commit(range);
  const launch = (size: number) => () =>
    driver.launch(stream, { kernel, blocks: 1, arguments: [span(range.address, size), 1, 4] });
  launch(maxWideSpan)();
  rejects("UNSUPPORTED", launch(maxWideSpan + 4), /2 GiB of one tensor\. Split the tensor/);
  driver.synchronize(stream);
  driver.close();
});

test("device memory is larger than 4 GiB if the engine has 64-bit memory, and else says what to do", () => {
  const driver = openCpuDriver({ threads: 1, maximumBytes: 6 * GiB });
  if (!hasMemory64()) {
    assert.ok(driver.describe().addressSpace < 4 * GiB);
    rejects(
      "OUT_OF_MEMORY",
      () => driver.reserve(bytes(5 * GiB)),
      /HOLDFAST_MEMORY: up to 16 GiB with Node\.js 24/,
    );
    driver.close();
    return;
  }
  const stream = driver.createStream();
  const reservation = driver.reserve(bytes(5 * GiB));
  const last = span(reservation.address + reservation.size - pageBytes, pageBytes);
  driver.commit(last);
  driver.fill(stream, last, 1);
  const elements = 5;
  const result = span(last.address, elements * 4);
  const source = span(last.address + 256, elements * 4);
  driver.launch(stream, {
    kernel: driver.loadKernel(basicKernels.fill),
    blocks: blockCount(elements),
    arguments: [source, 1.5, elements],
  });
  driver.launch(stream, {
    kernel: driver.loadKernel(basicKernels.add),
    blocks: blockCount(elements),
    arguments: [source, source, result, elements],
  });
  driver.synchronize(stream);
  const values = driver.deviceBytes(result).slice();
  assert.deepEqual([...new Float32Array(values.buffer)], [3, 3, 3, 3, 3]);
  assert.equal(driver.deviceBytes(last).at(-1), 1);
  driver.close();
});
