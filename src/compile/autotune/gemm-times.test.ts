/**
 * GEMMs of a few rows are timed as in a step, alone and in groups: their weights come from device memory, and are loaded while the launch before
 * them ends.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { emulatorMissing } from "../../../test/support/emulator.js";
import { openEmulatorGpu } from "../../../test/support/emulator-gpu.js";
import type { LaunchRequest, Runtime } from "../../runtime/index.js";
import type { Clock } from "../../units/index.js";
import { type BufferSlice, type GemmCall, Program } from "../program/program.js";
import { timeCandidates } from "./gemm-times.js";
import { autotuneGroupedGemms } from "./grouped-gemms.js";

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

/** The launches of own kernels while GEMMs are timed, by kernel. The clock moves so that bursts have 18 launches. */
function burstsOf(measure: (runtime: Runtime, clock: Clock) => void): readonly (readonly LaunchRequest[])[] {
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
  const clock = { nowMs: () => (nowMs += 1 / 18) } as Clock;
  try {
    measure(runtime, clock);
  } finally {
    device.close();
  }
  const isSkinny = ({ name }: LaunchRequest["kernel"]): boolean => name.includes("skinny");
  return [...launched].filter(([kernel]) => isSkinny(kernel)).map(([, requests]) => requests);
}

/** Timed alone, and as a group of two. */
const measurements: Readonly<Record<string, (runtime: Runtime, clock: Clock) => void>> = {
  "a GEMM": (runtime, clock) => void timeCandidates(runtime, problemWith(1), { limitMs: 2, clock }),
  "a group of GEMMs": (runtime, clock) => {
    const [first, second] = [problemWith(1), problemWith(1)];
    const slice = { ...second.b.slice, buffer: { ...second.b.slice.buffer, id: 3 } };
    const problems = [first, { ...second, a: first.a, b: { ...second.b, slice } }];
    const program = new Program([{ op: "linear", work: { kind: "grouped-gemm", problems } }]);
    autotuneGroupedGemms(runtime, program, { known: new Map(), clock });
  },
};

for (const [name, measure] of Object.entries(measurements)) {
  test(`${name} of a few rows reads other weights in every launch, and loads them early`, {
    skip: emulatorMissing,
  }, () => {
    const bursts = burstsOf(measure);
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
}
