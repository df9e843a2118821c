/** The verifier's reads and writes equal those of the passes, and do not depend on them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { planAllSchedules, withNullGpu } from "../../../test/support/null-gpu.js";
import { rejectionOf } from "../../../test/support/rejections.js";
import { type WorkloadName, widthWorkloads } from "../../../test/support/width-workloads.js";
import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { PlannedStep } from "../planned-step.js";
import { kindOf } from "../program/kinds/index.js";
import type { Kind } from "../program/kinds/kind.js";
import {
  type Access,
  accessesOf,
  type BufferSlice,
  type Call,
  type LaunchCall,
  membersOf,
  type Work,
} from "../program/program.js";
import { effectsOf } from "./effects.js";

type Precision = "tf32" | "bf16";

/** Models by width and batch, with the precisions in which they are planned. */
const workloads: readonly (readonly [WorkloadName, number, number, readonly Precision[]])[] = effort({
  quick: [
    ["crossAsset", 176, 256, ["bf16"]],
    ["convnet", 34, 4, ["tf32"]],
  ],
  thorough: [
    ["crossAsset", 176, 256, ["tf32", "bf16"]],
    ["characters", 48, 8, ["tf32", "bf16"]],
    ["gpt", 64, 4, ["tf32", "bf16"]],
    ["convnet", 34, 4, ["tf32", "bf16"]],
  ],
});

function plansOf(
  name: WorkloadName,
  width: number,
  batch: number,
  precision: Precision,
): readonly PlannedStep[] {
  return withNullGpu(precision, (device) => {
    const { step } = widthWorkloads[name](device, { width, batch, isPlannedOnly: true });
    return planAllSchedules(device, step);
  });
}

/** A call, and for a grouped reduction also its two phases as separate calls; any slice serves as scratch memory. */
function withPartials(call: Call): readonly Call[] {
  const { work } = call;
  if (work.kind !== "grouped-reduce") return [call];
  const { columns } = work;
  const scratch = work.scratch ?? columns[0]!.operands[0]!;
  const partials = { kind: "partial-reduce", columns, scratch } as const;
  return [
    call,
    { ...call, work: partials },
    { ...call, work: { kind: "grouped-reduce", columns: [], partials } },
  ];
}

/** Calls of kinds that these steps do not have, on any slice. */
function rareCalls(slice: BufferSlice): readonly Call[] {
  const kernel = {
    name: "scan",
    parameters: ["in", "inout", "out", "u32"],
  } as unknown as LaunchCall["kernel"];
  const shape = { dtype: "f32", outer: 1, length: 1, inner: 1, count: 1, isIndexShared: true } as const;
  const operands = { index: slice, source: slice, target: slice, scratch: [slice] };
  const fillKernel: RowKernel = {
    ...{ name: "fill", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.constant(0, "f32") }],
  };
  const iteration = iterateElements([1], [[1], [1]]);
  const matrix = { slice, rowStride: 1 };
  const row = { ...slice, buffer: { id: -1, bytes: slice.size, label: "row" } };
  const works: readonly Work[] = [
    { kind: "row", kernel: fillKernel, iteration, operands: [slice, slice], scalars: [] },
    { kind: "fill", target: slice, byte: 0 },
    { kind: "launch", kernel, blocks: 1, arguments: [slice, slice, slice, 1] },
    { kind: "scatter", shape, ...operands },
    {
      kind: "gemm-sum",
      problem: { dtype: "bf16", m: 1, n: 1, k: 1, a: matrix, b: matrix, c: matrix },
      addends: [{ k: 1, a: matrix, b: matrix }],
    },
    {
      ...{ kind: "gemm-prologue", activations: 1 },
      rows: { kind: "row", kernel: fillKernel, iteration, operands: [slice, row], scalars: [] },
      problems: [{ dtype: "bf16", m: 1, n: 1, k: 1, a: { slice: row, rowStride: 1 }, b: matrix, c: matrix }],
    },
    { kind: "row-map", tables: [{ index: slice, stride: 1, count: 1, rows: 1 }], map: slice, owners: slice },
    { kind: "scatter", shape: { ...shape, overwrites: true }, ...operands },
    {
      ...{ kind: "grouped-scatter", scratch: [slice] },
      scatters: [{ kind: "scatter", shape, ...operands, scratch: [] }],
    },
  ];
  return works.map((work) => ({ op: work.kind, work }));
}

const textOf = (accesses: readonly Access[]): string[] =>
  accesses
    .map(
      ({ slice, reads, writes, visits }) =>
        `${slice.buffer.id}+${slice.offset}:${slice.size} ${reads} ${writes} ${visits?.operand}`,
    )
    .sort();

test("verifier and passes agree on every call of every stage, for all kinds of calls", () => {
  const seen = new Set<Work["kind"]>();
  for (const [name, width, batch, precisions] of workloads) {
    for (const precision of precisions) {
      const calls = plansOf(name, width, batch, precision).flatMap(({ stages }) =>
        stages.flatMap((stage) => stage.calls),
      );
      for (const call of new Set([
        ...calls.flatMap(withPartials),
        ...rareCalls(accessesOf(calls[0]!)[0]!.slice),
      ])) {
        seen.add(call.work.kind);
        const { accesses, members } = effectsOf(call);
        assert.deepEqual(textOf(accesses), textOf(accessesOf(call)), call.op);
        assert.deepEqual(members.map(textOf), membersOf(call).map(textOf), call.op);
      }
    }
  }
  assert.deepEqual([...seen].sort(), [
    ...[
      "attention",
      "chunked-reduce",
      "column",
      "combo",
      "convolution",
      "copy",
      "fill",
      "gemm",
      "gemm-epilogue",
      "gemm-prologue",
      "gemm-sum",
    ],
    ...[
      "grouped-gemm",
      "grouped-reduce",
      "grouped-scatter",
      "launch",
      "partial-reduce",
      "row",
      "row-map",
      "scatter",
    ],
  ]);
});

/** Plans a step while one kind of call hides some of its accesses from the passes, the scheduler and the planner. */
function rejectionWithout(kind: Work["kind"], isHidden: (access: Access) => boolean): string {
  const definition = kindOf({ kind } as Work) as { -readonly [Key in keyof Kind<Work>]: Kind<Work>[Key] };
  const { accesses } = definition;
  definition.accesses = (work) => accesses(work).filter((access) => !isHidden(access));
  try {
    const error = rejectionOf(() =>
      kind === "convolution" ? plansOf("convnet", 34, 4, "tf32") : plansOf("characters", 48, 8, "bf16"),
    );
    return error?.code === "PLAN_REJECTED" ? String(error.numbers["rule"]) : "none";
  } finally {
    definition.accesses = accesses;
  }
}

const readers = [
  ...(["row", "column", "gemm", "attention", "convolution"] as const),
  ...(["scatter", "chunked-reduce"] as const),
];
for (const kind of readers) {
  test(`a plan is rejected if a kind hides its reads: ${kind}`, () => {
    assert.notEqual(
      rejectionWithout(kind, ({ reads }) => reads),
      "none",
    );
  });
}
