/** GEMMs of a few rows are timed as in a step: their weights come from device memory, and are loaded while the launch before them ends. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { emulatorMissing } from "../../../test/support/emulator.js";
import { openEmulatorGpu } from "../../../test/support/emulator-gpu.js";
import type { LaunchRequest } from "../../runtime/index.js";
import type { BufferSlice, GemmCall } from "../program/program.js";
import { timeCandidates } from "./gemm-times.js";

const [n, k] = [16, 32];

function problemWith(m: number): GemmCall["problem"] {
  const slice = (id: number, elements: number, label: string): BufferSlice => ({
    ...{ buffer: { id, bytes: 2 * elements, label }, offset: 0, size: 2 * elements },
  });
  return {
    ...{ dtype: "bf16", m, n, k },
    a: { slice: slice(0, m * k, "a"), rowStride: k },
    b: { slice: slice(1, n * k, "b"), rowStride: k, isTransposed: true },
    c: { slice: slice(2, m * n, "c"), rowStride: n },
  };
}

/** The launches of own kernels in the bursts of a GEMM with `m` rows, by kernel. The clock moves so that bursts have 18 launches. */
function burstsOf(m: number): readonly (readonly LaunchRequest[])[] {
  const device = openEmulatorGpu({ precision: "bf16" });
  const { runtime } = device;
  const launched = new Map<LaunchRequest["kernel"], LaunchRequest[]>();
  const { launch } = runtime;
  Object.defineProperty(runtime, "launch", {
    value: (request: LaunchRequest) => {
      const known = launched.get(request.kernel) ?? [];
      launched.set(request.kernel, [...known, request]);
      launch.call(runtime, request);
    },
  });
  let nowMs = 0;
  const clock = { nowMs: () => (nowMs += 1 / 18) } as Parameters<typeof timeCandidates>[2]["clock"];
  try {
    timeCandidates(runtime, problemWith(m), { limitMs: 2, clock });
  } finally {
    device.close();
  }
  const isSkinny = ({ name }: LaunchRequest["kernel"]): boolean => name.includes("skinny");
  return [...launched].filter(([kernel]) => isSkinny(kernel)).map(([, requests]) => requests);
}

test("a GEMM of a few rows reads other weights in every launch, and loads them early", {
  skip: emulatorMissing,
}, () => {
  const bursts = burstsOf(1);
  assert.ok(bursts.length > 1);
  for (const requests of bursts) {
    // Earlier launches warm up.
    const [first, ...burst] = requests.slice(requests.findLastIndex(({ isPdl }) => isPdl === false));
    const weightsOf = (request: LaunchRequest | undefined) => {
      const storages = request?.arguments.filter((value) => typeof value === "object") ?? [];
      return storages[1]?.span.address;
    };
    assert.equal(first?.isPdl, false);
    assert.ok(burst.length >= 16 && burst.every(({ isPdl }) => isPdl), `${burst.length}`);
    assert.equal(new Set([first, ...burst].map(weightsOf)).size, burst.length + 1);
  }
});
