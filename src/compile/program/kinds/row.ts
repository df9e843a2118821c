/** A row kernel over slices: its inputs, then its outputs. */

import { dtypes, factsOf, type Iteration, loadsOf, type RowKernel } from "../../../ir/index.js";
import { lowerCalls, type RowLaunch, rowCalls } from "../../../kernels/index.js";
import { type Access, accessOf } from "../access.js";
import { type BufferSlice, isSameSlice } from "../buffer.js";
import { type Emission, type Kind, prefetchesOf } from "./kind.js";

export interface RowCall {
  readonly kind: "row";
  readonly kernel: RowKernel;
  readonly iteration: Iteration;
  readonly operands: readonly BufferSlice[];
  readonly scalars: readonly number[];
}

export const row: Kind<RowCall> = {
  accesses(work) {
    const { kernel, iteration } = work;
    const { inputs } = kernel;
    const { readsAtIndex } = factsOf(kernel);
    return work.operands.flatMap((slice, index): Access | [] => {
      const dtype = inputs[index];
      if (dtype === undefined) return accessOf(slice, "out");
      if (forwardedOutput(work, index) !== undefined) return [];
      if (readsAtIndex || dtype === "draw" || isDense(iteration, index)) return accessOf(slice, "in");
      const visits = { iteration, operand: index, elementBytes: dtypes[dtype].bytes };
      return { slice, reads: true, writes: false, visits };
    });
  },
  mapSlices: (work, to) => ({ ...work, operands: work.operands.map(to) }),
  key({ kernel, operands, ...rest }, { read, written, literal, identity }) {
    const slices = operands.map((slice, index) =>
      index < kernel.inputs.length ? read(slice) : written(slice),
    );
    return `${identity(kernel)} ${slices.join(" ")} ${literal(rest)}`;
  },
  name: ({ kernel }) => kernel.name,
  shape: ({ iteration }) => `${iteration.rows}×${iteration.row.size}`,
  prefetchable: ({ operands, kernel }) => operands.slice(0, kernel.inputs.length),
  emit: (work, emission) => lowerCalls(emission.backend, rowCalls(rowLaunchOf(work, emission))),
};

export function rowLaunchOf(
  { kernel, iteration, operands, scalars }: RowCall,
  emission: Emission,
): RowLaunch {
  const storages = operands.map((slice) => emission.resolve(slice));
  return { kernel, iteration, operands: storages, scalars, prefetchable: prefetchesOf(operands, emission) };
}

/** True if an iteration visits one element after the other, without gaps. */
function isDense({ outer, row: { strides } }: Iteration, operand: number): boolean {
  return outer.length === 0 && (strides[operand] ?? 0) <= 1;
}

/**
 * Store-to-load forwarding: the output whose memory an input shares and that an earlier stage of the same kernel stores. Such an input
 * reads nothing from before the call.
 */
export function forwardedOutput({ kernel, operands }: RowCall, input: number): number | undefined {
  const inputSlice = operands[input];
  const operand = operands.findIndex(
    (slice, index) =>
      index >= kernel.inputs.length && inputSlice !== undefined && isSameSlice(slice, inputSlice),
  );
  const output = operand - kernel.inputs.length;
  const { loads, stores } = stagesOf(kernel);
  return operand >= 0 && (stores[output] ?? Infinity) < (loads[input] ?? Infinity) ? output : undefined;
}

interface KernelStages {
  /** The first stage that loads each input, and the first that stores each output. */
  readonly loads: readonly number[];
  readonly stores: readonly number[];
}

const cachedStages = new WeakMap<RowKernel, KernelStages>();

function stagesOf(kernel: RowKernel): KernelStages {
  const cached = cachedStages.get(kernel);
  if (cached) return cached;
  const [loads, stores]: [number[], number[]] = [[], []];
  for (const [index, stage] of kernel.stages.entries()) {
    for (const { input } of loadsOf(stage.value)) loads[input] ??= index;
    if (stage.kind === "store") stores[stage.output] ??= index;
  }
  cachedStages.set(kernel, { loads, stores });
  return { loads, stores };
}
