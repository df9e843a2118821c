/** A plan record of a compiled step, as a run writes it: layers forward, backward and update, with planned memory. */

import type { PlanRecord } from "../../src/records/index.js";

type CallReport = PlanRecord["calls"][number];
type PlannedTensor = PlanRecord["memory"]["tensors"][number];
type StageReport = PlanRecord["stages"][number];

export interface SamplePlanOptions {
  readonly name?: string;
  readonly layers?: number;
  readonly batch?: number;
  readonly step?: number;
  /** Milliseconds since 1970. */
  readonly time?: number;
}

/** Bytes of a layer's weights and of a row of its output. */
const width = 64;
const weightBytes = 4 * width * width;

export function samplePlan(options: SamplePlanOptions = {}): PlanRecord {
  const { name = "train step", layers = 4, batch = 32, step = 0, time = Date.UTC(2026, 0, 5) } = options;
  const calls = callsOf(layers, batch);
  const tensors = tensorsOf(layers, batch);
  const liveAt = calls.map((_, at) =>
    tensors.reduce((sum, { birth, death, bytes }) => sum + (birth <= at && at <= death ? bytes : 0), 0),
  );
  const lowerBound = Math.max(0, ...liveAt);
  const inputs = `f32 [${batch}, ${width}], i32 [${batch}]`;
  const opsOf = (kept: readonly CallReport[]): StageReport["calls"] =>
    kept.map(({ op, kernel }) => ({ op, kernel }));
  return {
    ...{ name, inputs, at: new Date(time).toISOString(), step, mode: "graph", isRejected: false },
    text: `compiled step "${name}" for ${inputs}: ${calls.length} calls`,
    stages: [
      {
        name: "trace",
        purpose: "the calls of the step",
        effect: "",
        calls: opsOf([...calls, ...calls.slice(0, 1)]),
      },
      {
        name: "dead code",
        purpose: "results that no call reads are not computed",
        effect: "1 call removed",
        calls: opsOf(calls),
      },
    ],
    calls,
    memory: {
      peak: Math.max(0, ...tensors.map(({ offset, bytes }) => offset + bytes)),
      ...{ lowerBound, peakAt: liveAt.indexOf(lowerBound), tensors },
      persistent: [
        { label: "parameters", bytes: layers * weightBytes },
        { label: "moments: AdamW", bytes: 2 * layers * weightBytes },
      ],
    },
  };
}

/** `layers` forward calls, as many backward calls, and one update. */
function callsOf(layers: number, batch: number): CallReport[] {
  const bytes = 4 * batch * width;
  const call = (op: string, phase: CallReport["phase"], index: number): CallReport => ({
    ...{ op, kernel: `${op}_f32`, kind: op === "adamw" ? "elementwise" : "gemm", phase },
    ...{ shape: `f32 [${batch}, ${width}]`, stream: phase === "backward" && index % 2 === 1 ? 1 : 0 },
    ...{ readBytes: bytes + weightBytes, writtenBytes: bytes, us: 10 + index },
  });
  return [
    ...Array.from({ length: layers }, (_, index) => call("linear", "forward", index)),
    ...Array.from({ length: layers }, (_, index) => call("linear gradient", "backward", index)),
    call("adamw", "update", 0),
  ];
}

/** Outputs are saved until their gradient is computed; gradients live until the update. */
function tensorsOf(layers: number, batch: number): PlannedTensor[] {
  const type = `f32 [${batch}, ${width}]`;
  const tensors = Array.from({ length: layers }, (_, index) => [
    {
      ...{ label: `linear ${index}`, type, bytes: 4 * batch * width, isSaved: true },
      ...{ birth: index, death: 2 * layers - 1 - index },
    },
    {
      ...{ label: `gradient of weight ${layers - 1 - index}`, type: `f32 [${width}, ${width}]` },
      ...{ bytes: weightBytes, isSaved: false, birth: layers + index, death: 2 * layers },
    },
    {
      ...{ label: `scratch of linear ${index}`, type: undefined, bytes: 1024, isSaved: false },
      ...{ birth: index, death: index },
    },
  ]).flat();
  const planned: PlannedTensor[] = [];
  for (const tensor of tensors) planned.push({ ...tensor, offset: offsetFor(tensor, planned) });
  return planned;
}

/** The lowest offset without an overlapping live tensor. */
function offsetFor(tensor: Omit<PlannedTensor, "offset">, planned: readonly PlannedTensor[]): number {
  let offset = 0;
  const neighbours = planned
    .filter(({ birth, death }) => birth <= tensor.death && tensor.birth <= death)
    .sort((a, other) => a.offset - other.offset);
  for (const other of neighbours) {
    if (other.offset >= offset + tensor.bytes) break;
    offset = Math.max(offset, other.offset + other.bytes);
  }
  return offset;
}
