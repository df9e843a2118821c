/**
 * The gradients of embeddings: T tables of R × W, a batch of B entries for each. The scatters run as one launch, and one after the other;
 * their traffic is the entries' rows and the whole tables. "in the step" is the time of all scatters and row maps of a compiled training step,
 * which may store compact rows. Skewed: 90 % of the entries select one row.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/embedding-gradients.js [--emulator] [--shapes 26x20000x16x8192,8x100000x64x4096]
 */

import { cat, type Device, fromTyped, nn, optim, type Tensor, zeros } from "holdfast";
import { backendOf } from "../../src/kernels/backend.js";
import type { ScatterAdd, ScatterShape } from "../../src/kernels/scan-scatter/index.js";
import type { Command, Runtime, Storage } from "../../src/runtime/index.js";
import { readOptions } from "../../test/support/command-line.js";
import { commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";
import { timeCommandsUs } from "./time-commands.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  shapes: {
    type: "string",
    default:
      "26x20000x16x8192,8x100000x64x4096,1x50304x768x8192,1x65x384x16384,3x1000000x32x16384,40x100x8x2048",
  },
  precision: { type: "string", default: "bf16" },
  /** Launches of a timed graph, and groups of replays, of which the best counts. */
  launches: { type: "string", default: "20" },
  groups: { type: "string", default: "5" },
  /** Leaves the steps out. */
  kernels: { type: "boolean", default: false },
});
const [launches, groups] = [count("launches", options.launches), count("groups", options.groups)];

interface Sizes {
  readonly tables: number;
  readonly rows: number;
  readonly width: number;
  readonly batch: number;
}

const shapes = options.shapes.split(",").map((text): Sizes => {
  const [tables = 0, rows = 0, width = 0, batch = 0] = text.split("x").map((size) => count("shapes", size));
  return { tables, rows, width, batch };
});

const skews = ["uniform", "skewed"] as const;
type Skew = (typeof skews)[number];

/** [batch, tables]: the row of each table for each sample. */
function indicesOf({ tables, rows, batch }: Sizes, skew: Skew): Int32Array<ArrayBuffer> {
  let state = 12345;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  const hot = Math.floor(rows / 3);
  return Int32Array.from({ length: tables * batch }, () =>
    skew === "skewed" && next() < 0.9 ? hot : Math.floor(next() * rows),
  );
}

const timeUs = (runtime: Runtime, commands: readonly Command[]): number =>
  timeCommandsUs(runtime, commands, { launches, replays: groups });

/** The times of the scatters to whole tables, in one launch and one after the other. */
function timeScatters(device: Device, sizes: Sizes, skew: Skew): Readonly<Record<"group" | "apart", number>> {
  const { runtime } = device;
  const backend = backendOf(runtime);
  const { tables, rows, width, batch } = sizes;
  const make = (bytes: number, label: string): Storage => {
    const storage = runtime.arena.allocate(bytes, label);
    runtime.fill(storage, 0);
    return storage;
  };
  return device.step(() => {
    const ids = indicesOf(sizes, skew);
    // [batch, tables · width], as the gradient of concatenated rows is.
    const source = make(4 * batch * tables * width, "source");
    const scratchOf = (some: readonly ScatterShape[]): Storage[] =>
      backend.scatterScratchBytes(some).map((bytes) => make(bytes, "scratch"));
    const members = Array.from({ length: tables }, (_, table): ScatterAdd => {
      const index = make(4 * batch, "index");
      const own = Int32Array.from({ length: batch }, (_, entry) => ids[entry * tables + table]!);
      runtime.upload([{ source: own, target: index }]);
      return {
        ...{ dtype: "f32", outer: 1, length: rows, inner: width, count: batch, isIndexShared: true },
        ...{ index, target: make(4 * rows * width, "target"), overwrites: true },
        source: runtime.view(source, 4 * table * width, 4 * ((batch - 1) * tables + 1) * width),
        strides: { outerSource: 0, sourceRow: tables * width },
      };
    });
    const apart = members.flatMap((member) =>
      backend.lowerScatterAdd({ ...member, scratch: scratchOf([member]) }, "scatterAdd"),
    );
    const group = backend.lowerScatterGroup({ members, scratch: scratchOf(members) }, "scatterAdd");
    return { group: timeUs(runtime, group), apart: timeUs(runtime, apart) };
  });
}

/** The calls of a training step that compute the gradients of its tables. */
function timeStep(device: Device, sizes: Sizes, skew: Skew): string {
  const { tables, rows, width, batch } = sizes;
  const embeddings = new nn.ModuleList(Array.from({ length: tables }, () => new nn.Embedding(rows, width)));
  for (const parameter of embeddings.parameters()) parameter.initialize(nn.init.zeros());
  embeddings.to(device);
  const parameters = embeddings.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 0.001 });
  const ids = device.keep(fromTyped(indicesOf(sizes, skew), [batch, tables], { device }));
  const factors = device.keep(zeros([batch, tables * width], { device }));
  const step = device.compile((): Tensor => {
    const looked = [...embeddings].map((table, index) => table.forward(ids.select(1, index)));
    const loss = cat(looked, 1).mul(factors).sum();
    loss.backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  for (let call = 0; call < 3; call++) device.step(() => void step());
  const calls = step.report({ times: true })[0]?.calls ?? [];
  const [all, own] = [calls, calls.filter(({ op }) => op.includes("indexSelectGradient"))].map((some) =>
    some.reduce((sum, { us = 0 }) => sum + us, 0),
  );
  const form = calls.some(({ kernel }) => kernel === "row map") ? "compact" : "whole";
  step.close();
  return `${own?.toFixed(1)} of ${all?.toFixed(1)}, ${form}`;
}

const results = new Results("embedding-gradients", options);
const table = [["tables × rows × width ← entries", "", "µs", "apart, µs", "MB", "GB/s", "in the step, µs"]];
for (const sizes of shapes) {
  for (const skew of skews) {
    const { tables, rows, width, batch } = sizes;
    const name = `${tables} × ${rows} × ${width} ← ${batch}`;
    await results.attempt(`${name}, ${skew}`, () => {
      const { device, close } = openGpu(options, {
        device: {
          memory: options.emulator ? "512MiB" : "8GiB",
          precision: options.precision === "f32" ? "f32" : options.precision === "tf32" ? "tf32" : "bf16",
        },
      });
      try {
        const { group, apart } = timeScatters(device, sizes, skew);
        const megabytes = (4 * tables * width * (batch + rows)) / 1e6;
        const inStep = options.kernels ? "–" : timeStep(device, sizes, skew);
        const rate = ((1000 * megabytes) / group).toFixed(0);
        table.push([name, skew, group.toFixed(1), apart.toFixed(1), megabytes.toFixed(1), rate, inStep]);
        console.log(table.at(-1)?.join("  "));
      } finally {
        close();
      }
    });
  }
}
results.table(table);
results.finish();
